#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_DEDICATED_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_DEDICATED_POLICY_H_

#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

// No sharing: a GPU, or a TP group, for each replica; the smallest that holds
// it, the largest F_M first.
class DedicatedPolicy : public Policy {
 public:
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_DEDICATED_POLICY_H_
