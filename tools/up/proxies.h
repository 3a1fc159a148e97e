#ifndef TOOLS_UP_PROXIES_H_
#define TOOLS_UP_PROXIES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/fleet/door/message.h"

namespace fineserve::fsctl {

// Asks all proxies of a fleet on this machine; the question's fleet_path names
// the fleet. Returns one answer for each proxy; nullopt if it does not answer
// in time. Omits proxies that have gone, and those of other fleets.
using AskProxies = std::function<std::vector<absl::optional<apply::Answer>>(
    const apply::Question& question)>;

// Returns a function that asks the proxies whose doors are in a runtime folder.
AskProxies ProxiesOf(const std::string& folder);

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_PROXIES_H_
