#ifndef DAEMON_LEAD_DECIDE_H_
#define DAEMON_LEAD_DECIDE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/config/fleet.h"
#include "daemon/lead/outlook.h"
#include "daemon/lead/standing_plan.h"
#include "daemon/plan/score/goodput.h"

namespace fineserve::lead {

// What the planner would change now.
struct Decision {
  // Places that are to serve at once, because their models have no engine.
  std::vector<std::string> host;
  absl::optional<Move> move;
  std::map<std::string, double> rates;  // requests/s, by engine that serves
  std::vector<std::string> troubles;    // lines for the operator
};

// How much more `to` is worth than `from`, in parts of it: the gain in goodput;
// where both have the same to a hundredth, that in goodput at `burst` times the
// rates. Infinite if `to` hosts more models, −1 if it hosts fewer.
double RelativeGain(const plan::Worth& from, const plan::Worth& to);

// Plans, and says which single step to take towards the best plan: the one that
// fits beside all that runs and leaves the placement worth most. `may_move`:
// whether a move may begin at all. `least_gain`: of the best plan over what is
// there. InvalidArgument as MakePlan's.
absl::StatusOr<Decision> Decide(const config::Fleet& fleet,
                                const StandingPlan& plan,
                                const std::map<std::string, GpuMemory>& gpus,
                                const std::map<std::string, Demand>& demand,
                                bool may_move, double least_gain);

}  // namespace fineserve::lead

#endif  // DAEMON_LEAD_DECIDE_H_
