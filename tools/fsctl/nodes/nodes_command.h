#ifndef TOOLS_FSCTL_NODES_NODES_COMMAND_H_
#define TOOLS_FSCTL_NODES_NODES_COMMAND_H_

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl nodes`: the machines of the fleet, as this one's fineserve-node knows
// them. Returns the exit code: 1 if something is wrong.
int RunNodes(const Globals& globals);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_NODES_NODES_COMMAND_H_
