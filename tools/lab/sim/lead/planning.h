#ifndef TOOLS_LAB_SIM_LEAD_PLANNING_H_
#define TOOLS_LAB_SIM_LEAD_PLANNING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/proxy/admission/demand_book.h"
#include "daemon/scheduling/lead/demand_window.h"
#include "daemon/scheduling/lead/leader.h"
#include "tools/lab/sim/lead/hand.h"
#include "tools/lab/sim/lead/setup.h"

namespace fineserve::sim {

// A record of the leader's actions.
struct PlanRecord {
  struct Step {
    Micros at;
    uint64_t number;  // of the plan
    std::string why;
  };
  std::vector<Step> steps;  // but those that only changed rates
  uint64_t last_number = 0;
  uint32_t moves = 0;  // begun
  uint32_t moves_undone = 0;
  uint64_t failed_starts = 0;         // of engines
  std::vector<std::string> troubles;  // of the last planning, for the operator
};

// Planning while engines serve, in virtual time (design note 0024): the leader
// that ships, with the proxy's counts, the daemons' reports about these counts
// and the requests that they let in, and the hand. Processes that talk once a
// second all do so at the same time here: first the proxy greets the daemons,
// then the hand does what they know, then the leader announces its plan and
// hears reports. Planning takes no virtual time, and no process dies. Confined
// to one thread.
class Planning {
 public:
  static constexpr Micros kSecondUs = 1'000'000;

  // Both outlive it.
  Planning(const PlanningSetup& setup, Gpus* gpus);

  // Does the work of each second; the GPUs do their part in their next Run.
  // Time begins at 0.
  void Second(Micros now);
  // No move begins from now on.
  void Freeze();

  // True if there is a plan, and it has been carried out.
  bool IsAtRest() const;
  // As the proxy knows it.
  const wire::NewestPlan& plan() const { return at_proxy_; }
  // Returns the proxy's counts, for requests counted at `now`.
  proxy::DemandBook& demand(Micros now) {
    clock_.Set(now);
    return demand_;
  }
  uint64_t NowNs() const { return clock_.NowNs(); }

  PlanRecord TakeRecord();

 private:
  // Starts after 0, because a leader takes the time 0 for never.
  class VirtualClock final : public Clock {
   public:
    uint64_t NowNs() const override { return now_ns_; }
    void Set(Micros now) {
      now_ns_ = static_cast<uint64_t>(now + kSecondUs) * 1000;
    }

   private:
    uint64_t now_ns_ = 0;
  };

  void Greet();
  void Lead(Micros now);
  void CountMoves(const absl::optional<lead::Move>& before);
  void RecordSteps(Micros now);
  wire::ReportT ReportOf(uint32_t gpu, Micros now) const;

  const PlanningSetup& setup_;
  Gpus* const gpus_;
  VirtualClock clock_;
  proxy::DemandBook demand_;
  wire::NewestPlan at_proxy_;
  // All daemons learn the same plan at the same time.
  wire::NewestPlan at_daemons_;
  admission::DemandTotals totals_;
  lead::Leader leader_;
  Hand hand_;
  PlanRecord record_;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_LEAD_PLANNING_H_
