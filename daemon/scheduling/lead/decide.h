#ifndef DAEMON_SCHEDULING_LEAD_DECIDE_H_
#define DAEMON_SCHEDULING_LEAD_DECIDE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/global/score/goodput.h"
#include "daemon/scheduling/lead/outlook.h"
#include "daemon/scheduling/lead/places_off.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::lead {

// The facts known about engines besides the plan, by name.
struct Experience {
  std::set<std::string> down;  // are to serve, and do not
  std::set<std::string>
      failing;  // of these, those that have not served for long
  std::set<std::string> shunned;  // did not serve when they were to, or may not
  std::set<std::string> drained;  // are to serve, and their GPU is drained
  std::set<std::string> silent;   // places whose GPU's daemon does not answer
};

// The changes that the planner would make now.
struct Decision {
  // Places that must serve at once, because their models have no engine.
  std::vector<std::string> host;
  absl::optional<Move> move;
  std::map<std::string, double> rates;  // requests/s, by engine that serves
  std::vector<std::string> troubles;    // lines for the operator
  Rest rest = {};  // beside all of that; not decided by Decide
};

// Returns the gain of `to` over `from`, as a fraction of `from`: in goodput or,
// if both have the same goodput to a hundredth, in goodput at `burst` times the
// rates. Infinite if `to` hosts more models, −1 if it hosts fewer.
double RelativeGain(const plan::Worth& from, const plan::Worth& to);

// Returns a move of a failing or drained engine to another place of its model
// that is not shunned, whose daemon answers, and where it fits. A drained
// engine without such a place ends if its model also serves elsewhere.
absl::optional<Move> Rescue(const config::Fleet& fleet, const Outlook& outlook,
                            const StandingPlan& plan,
                            const Experience& experience);

// Plans, and chooses the next single step towards the best plan: of the steps
// that fit beside everything that runs, the one with which the placement is
// worth most. `may_move` says whether a move may begin at all; `least_gain` is
// the required gain of the best plan over the present one. A rescue needs no
// gain, and comes first. InvalidArgument in the same cases as MakePlan.
absl::StatusOr<Decision> Decide(const config::Fleet& fleet,
                                const StandingPlan& plan,
                                const std::map<std::string, GpuMemory>& gpus,
                                const std::map<std::string, Demand>& demand,
                                const Experience& experience, bool may_move,
                                double least_gain);

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_DECIDE_H_
