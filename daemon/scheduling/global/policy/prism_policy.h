#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_POLICY_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

// Prism's Algorithm 1: takes models by their SLO-weighted rate, the highest
// first, and places each on the GPU with the lowest KVPR. A model of TP t is t
// entries of 1/t of its weights and rate. Two of them never share a GPU (the
// second takes the second-lowest), and here all are on one node. A model stays
// where it is unless the best place is better by τ.
class PrismPolicy : public Policy {
 public:
  enum class Form {
    // KVPR as it is before the model is placed, without checking that the model
    // fits. A replica that then does not fit is left out, since no plan may
    // promise it.
    kPrinted,
    // KVPR as it would be with the model; only where the model fits.
    kMended,
  };
  PrismPolicy(Form form, Pressure pressure, double stay_share)
      : form_(form), pressure_(pressure), stay_share_(stay_share) {}

  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;

 private:
  double Ratio(const Assignment& a, uint32_t replica, uint32_t gpu) const;
  std::vector<Candidate> Candidates(const Assignment& a,
                                    uint32_t replica) const;
  double Highest(const Assignment& a, uint32_t replica,
                 const Group& group) const;

  Form form_;
  Pressure pressure_;
  double stay_share_;
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_PRISM_POLICY_H_
