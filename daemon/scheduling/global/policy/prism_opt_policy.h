#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_OPT_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_OPT_POLICY_H_

#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

// Finds the lowest highest KVPR that we can. A highest KVPR of T is possible
// exactly if items of weight + asked / T fit into bins of the GPUs' capacity
// (multiply by T: d + T · w into T · C). So this does a binary search on T,
// with best fit decreasing at each step; then models leave or swap off the GPU
// with the highest KVPR as long as that lowers it.
class PrismOptPolicy : public Policy {
 public:
  explicit PrismOptPolicy(Pressure pressure) : pressure_(pressure) {}
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;

 private:
  Pressure pressure_;
};

// Moves and swaps replicas off the GPU with the highest KVPR while the highest
// KVPR of the GPUs concerned falls. Everything continues to fit
// (Charge::kLeast).
void LowerPressure(Pressure pressure, Assignment* a);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_OPT_POLICY_H_
