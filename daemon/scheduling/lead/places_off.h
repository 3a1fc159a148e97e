#ifndef DAEMON_SCHEDULING_LEAD_PLACES_OFF_H_
#define DAEMON_SCHEDULING_LEAD_PLACES_OFF_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/lead/outlook.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::lead {

// The processes of places that are off: which stay, and which end.
struct Rest {
  std::set<std::string> stays;  // engines
  std::set<std::string> ends;   // memory lacks: of a GPU, or of its machine
  std::vector<std::string> troubles;  // lines for the operator
};

// Decides which of the places that are off and have a process rest beside all
// that runs by `plan`, and which end. An engine that already rests stays while
// it fits, whatever the rates, because an engine that ends can come back only
// by a start. All stay if the host memory is not known. InvalidArgument in the
// same cases as MakePlan.
absl::StatusOr<Rest> DecideRest(const config::Fleet& fleet,
                                const StandingPlan& plan,
                                const std::map<std::string, GpuMemory>& gpus,
                                const std::map<std::string, Demand>& demand,
                                const PlacesOff& off);

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_PLACES_OFF_H_
