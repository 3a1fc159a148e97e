#ifndef TOOLS_FSCTL_PLAN_LIVE_PLAN_OUTPUT_H_
#define TOOLS_FSCTL_PLAN_LIVE_PLAN_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/contract/wire/message.h"

namespace fineserve::fsctl {

// One daemon's view of the plan in force.
struct DaemonPlan {
  std::string gpu;  // UUID
  wire::PlanStateT state;
  std::string trouble;  // why it says nothing; empty: it does

  // The number of the plan that the daemon applies; 0 if none.
  uint64_t number() const { return state.plan ? state.plan->number : 0; }
};

// Return, among the daemons that answered, the one with the highest plan
// number, and the leader (if there are two, the one with the higher plan
// number). Null if there is none.
const DaemonPlan* NewestOf(const std::vector<DaemonPlan>& daemons);
const DaemonPlan* LeaderOf(const std::vector<DaemonPlan>& daemons);

// Says why a daemon that does not lead is silent, or is not planned for.
// Printable; empty if nothing is wrong.
std::string TroubleOf(const DaemonPlan& daemon);

// Output of `fsctl plan` without a file. At least one of `daemons` has
// answered.
std::string LivePlanText(const std::vector<DaemonPlan>& daemons, bool color);
std::string LivePlanJson(const std::vector<DaemonPlan>& daemons);

// Shows the last `most` plans of a leader's history, newest last.
std::string HistoryText(const wire::PlanStateT& leader, uint32_t most,
                        bool color);
std::string HistoryJson(const wire::PlanStateT& leader, uint32_t most);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PLAN_LIVE_PLAN_OUTPUT_H_
