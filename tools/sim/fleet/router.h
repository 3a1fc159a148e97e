#ifndef TOOLS_SIM_FLEET_ROUTER_H_
#define TOOLS_SIM_FLEET_ROUTER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/proxy/choice/replica_order.h"
#include "daemon/wire/newest_plan.h"
#include "tools/sim/core/agenda.h"
#include "tools/sim/fleet/world.h"

namespace fineserve::sim {

// Which GPUs a request goes to, by the proxy's own code (daemon/proxy/choice).
// What it knows of waits is as old as its last greeting. Confined to one
// thread.
class Router {
 public:
  // Proxies greet this often (DaemonAdmission::kHelloNs).
  static constexpr Micros kHelloUs = 1'000'000;
  // How long prompts of the model wait on that GPU now, µs.
  using Drain = std::function<Micros(const Replica& replica)>;

  explicit Router(const World& world);

  // Whether any choice depends on waits.
  bool greets() const { return greets_; }
  void Hello(Micros now, const Drain& drain);

  // From now on by the plan, as the proxy knows it. `serves`: whether that
  // engine of that GPU does. Fleets without a planner need no call.
  using Serves = std::function<bool(uint32_t gpu, uint32_t engine)>;
  void FollowPlan(const wire::NewestPlan& plan, const Serves& serves);

  // Places in the model's replicas, best first.
  const std::vector<uint32_t>& Order(uint32_t model, Micros now);
  // The replica was asked for a prompt.
  void Asked(uint32_t model, uint32_t replica, uint32_t prompt_tokens);
  // It was admitted, and it ended; for the least load.
  void Load(uint32_t model, uint32_t replica, int64_t tokens);

 private:
  struct Known {
    int trouble = 0;
    double target_rate = 0;
    double due = 0;
    proxy::PredictedWait wait;
    int64_t load = 0;  // tokens outstanding
  };
  bool HasRates(uint32_t model) const;

  const World& world_;
  bool greets_ = false;
  std::vector<std::vector<Known>> known_;  // by model and replica
  std::vector<proxy::Candidate> candidates_;
  std::vector<uint32_t> order_;
};

}  // namespace fineserve::sim

#endif  // TOOLS_SIM_FLEET_ROUTER_H_
