#ifndef TOOLS_FSCTL_POOL_FORMER_POOLS_H_
#define TOOLS_FSCTL_POOL_FORMER_POOLS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "daemon/contract/abi/old_pool.h"

namespace fineserve::fsctl {

// Orphans: engines that serve on in the pool of a daemon that has ended, beside
// the pool that is shown.

// One line with what to do; empty if there is none.
std::string FormerPoolsText(const std::vector<abi::OldPool>& pools);
nlohmann::ordered_json FormerPoolsJson(const std::vector<abi::OldPool>& pools);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_FORMER_POOLS_H_
