#ifndef TOOLS_FSCTL_MOVE_STORE_COMMAND_H_
#define TOOLS_FSCTL_MOVE_STORE_COMMAND_H_

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl store`: what a daemon keeps in host memory of evicted engines. Returns
// the exit code.
int RunStore(const Globals& globals);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_MOVE_STORE_COMMAND_H_
