#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_DEDICATED_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_DEDICATED_POLICY_H_

#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

// Shares nothing: each replica gets a GPU or TP group to itself, the smallest
// that holds it. Replicas with the largest F_M come first.
class DedicatedPolicy : public Policy {
 public:
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_DEDICATED_POLICY_H_
