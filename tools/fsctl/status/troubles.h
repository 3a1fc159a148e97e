#ifndef TOOLS_FSCTL_STATUS_TROUBLES_H_
#define TOOLS_FSCTL_STATUS_TROUBLES_H_

#include <vector>

#include "tools/fsctl/status/status_input.h"

namespace fineserve::fsctl {

// All troubles, the worst first. Pure.
std::vector<Trouble> TroublesOf(const StatusInput& observed);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_TROUBLES_H_
