#ifndef TOOLS_FSCTL_STATUS_POOL_TROUBLES_H_
#define TOOLS_FSCTL_STATUS_POOL_TROUBLES_H_

#include <vector>

#include "tools/fsctl/status/status_input.h"

namespace fineserve::fsctl {

// Troubles that the slab tables show.
std::vector<Trouble> TroublesOfPools(const StatusInput& observed);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_POOL_TROUBLES_H_
