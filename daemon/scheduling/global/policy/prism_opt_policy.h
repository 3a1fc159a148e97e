#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_OPT_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_OPT_POLICY_H_

#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

// The least highest KVPR that we can find. A highest KVPR of T is possible
// exactly if items of weight + asked / T fit into bins of the GPUs' capacity
// (multiply by T: d + T · w into T · C): binary search on T, best fit
// decreasing at each step, then models that leave or swap off the GPU with the
// highest KVPR for as long as that lowers it.
class PrismOptPolicy : public Policy {
 public:
  explicit PrismOptPolicy(Pressure pressure) : pressure_(pressure) {}
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;

 private:
  Pressure pressure_;
};

// Moves and swaps replicas off the GPU with the highest KVPR while the highest
// of the GPUs concerned falls. Everything keeps fitting (Charge::kLeast).
void LowerPressure(Pressure pressure, Assignment* a);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_OPT_POLICY_H_
