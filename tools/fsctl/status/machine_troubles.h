#ifndef TOOLS_FSCTL_STATUS_MACHINE_TROUBLES_H_
#define TOOLS_FSCTL_STATUS_MACHINE_TROUBLES_H_

#include <vector>

#include "tools/fsctl/status/status_input.h"

namespace fineserve::fsctl {

// Troubles of the fleet's machines, and connections and plans that their
// daemons refused, as this machine's fineserve-node knows them. Nothing on a
// machine that is alone.
std::vector<Trouble> TroublesOfMachines(const StatusInput& observed);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_MACHINE_TROUBLES_H_
