#ifndef BENCH_REPLAN_PLANNED_SITE_H_
#define BENCH_REPLAN_PLANNED_SITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/replan/moves.h"
#include "bench/replan/planned_fleet.h"
#include "bench/serving/fleet_service.h"

namespace fineserve::bench {

// The first placement of the models.
struct Placing {
  std::vector<double> expected_rates;  // requests/s, by model
  bool on_one_gpu = false;             // no model may be placed on the second
};

// The whole service as processes: two emulated GPUs with a fineserved each,
// fsctl up, which runs a tinyserve of each model where the plan wants it, and
// fineserve-proxy. All engines are alike, and an engine's weights are next to
// nothing, so KV alone decides which fit side by side. All ends with this
// object. Confined to the thread that makes it.
class PlannedSite {
 public:
  PlannedSite();

  // Starts everything, waits until each model answers, and freezes that plan.
  // False, after a message on standard error, if that fails.
  bool StartFrozen(const Placing& placing);
  // Lets models move from now on. False, after a message, if there is no
  // leader.
  bool Thaw();

  uint16_t port() const { return service_.port(); }
  uint64_t PlanNumber();
  Moves MovesSince(uint64_t plan_number);

 private:
  bool AwaitPlan();
  void WriteProfile(const std::string& model) const;
  // `gpus`: their UUIDs.
  void WriteFleet(const Placing& placing, std::vector<std::string> gpus) const;
  std::string FleetPath() const { return service_.Path("fleet.toml"); }

  FleetService service_;
};

}  // namespace fineserve::bench

#endif  // BENCH_REPLAN_PLANNED_SITE_H_
