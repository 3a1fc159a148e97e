#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_MAKE_POLICY_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_MAKE_POLICY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/scheduling/local/policy/policy.h"

namespace fineserve::sched {

inline constexpr double kDefaultFloorShare = 0.1;

// Returns the policy with this name in the fleet file: "fineserve",
// "moore-hodgson", "fcfs". InvalidArgument, naming all three, for any other
// name. `floor_share` is for "fineserve" (floor.h).
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const std::string& name,
                                                   double floor_share);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_MAKE_POLICY_H_
