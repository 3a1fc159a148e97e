#ifndef TOOLS_LAB_SIM_FLEET_ROUTER_H_
#define TOOLS_LAB_SIM_FLEET_ROUTER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/contract/wire/newest_plan.h"
#include "daemon/proxy/replica_choice/replica_order.h"
#include "daemon/proxy/replica_choice/tied_request.h"
#include "daemon/scheduling/local/local_scheduler.h"
#include "tools/lab/sim/core/agenda.h"
#include "tools/lab/sim/fleet/world.h"

namespace fineserve::sim {

// Chooses a request's GPUs with the proxy's code (daemon/proxy/replica_choice).
// What it knows of waits is as old as its last greeting. Confined to one
// thread.
class Router {
 public:
  // The interval at which proxies greet (GpuAdmission::kHelloNs).
  static constexpr Micros kHelloUs = 1'000'000;
  // Returns the outlook of the replica's model on its GPU.
  using Waits = std::function<sched::Outlook(const Replica& replica)>;

  explicit Router(const World& world);

  // True if any choice depends on waits.
  bool greets() const { return greets_; }
  void Hello(Micros now, const Waits& waits);

  // From now on, follows the plan as the proxy knows it. `serves` returns
  // whether that engine of that GPU serves. Fleets without a planner need no
  // call.
  using Serves = std::function<bool(uint32_t gpu, uint32_t engine)>;
  void FollowPlan(const wire::NewestPlan& plan, const Serves& serves);

  // Returns a request for the model, whose places are the model's replicas.
  proxy::TiedRequest Tie(uint32_t model, Micros now);
  // Call when the replica was asked for a prompt.
  void Asked(uint32_t model, uint32_t replica, uint32_t prompt_tokens);
  // Call when the replica reported that a request waits, for about `start_us`.
  void Waiting(uint32_t model, uint32_t replica, Micros start_us, Micros now);
  // Call when `replica` got a request that had been charged to the replica
  // `charged`.
  void Repay(uint32_t model, uint32_t charged, uint32_t replica);
  // Call when a request was admitted, and when it ended; for the choice by
  // least load.
  void Load(uint32_t model, uint32_t replica, int64_t tokens);
  // Something ended on that GPU.
  void Ended(uint32_t gpu);

 private:
  struct Known {
    int trouble = 0;
    double target_rate = 0;
    double due = 0;
    proxy::PredictedWait wait;
    int64_t load = 0;  // tokens outstanding
  };

  const World& world_;
  bool greets_ = false;
  std::vector<std::vector<Known>> known_;  // by model and replica
  std::vector<int64_t> of_gpu_;            // tokens outstanding, by GPU
  std::vector<proxy::Candidate> candidates_;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_FLEET_ROUTER_H_
