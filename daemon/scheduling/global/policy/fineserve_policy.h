#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_FINESERVE_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_FINESERVE_POLICY_H_

#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

// Algorithm 1 of the paper: takes models by F_M, the largest first, and places
// each on the group with the highest score. A group that cannot hold F_M is not
// a candidate.
class FineServePolicy : public Policy {
 public:
  enum class Scoring {
    kMean,   // Eq. 3, the paper's own approximation
    kExact,  // Eqs. 1-2
  };
  FineServePolicy(Scoring scoring, Efficiency efficiency)
      : scoring_(scoring), efficiency_(efficiency) {}

  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;

 private:
  Scoring scoring_;
  Efficiency efficiency_;
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_FINESERVE_POLICY_H_
