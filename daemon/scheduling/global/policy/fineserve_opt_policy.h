#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_FINESERVE_OPT_POLICY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_FINESERVE_OPT_POLICY_H_

#include "daemon/scheduling/global/policy/local_search.h"
#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

// Ours: makes placements by several constructions (FineServe's Algorithm 1
// among them), improves each by moves and swaps on the worth of the whole
// (goodput.h), and then improves the best one by packing parts of it again. So
// it is never worth less than FineServe's. On large clusters only the best
// construction is improved. The present placement is one of the constructions.
class FineServeOptPolicy : public Policy {
 public:
  explicit FineServeOptPolicy(SearchLimits limits) : limits_(limits) {}
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;

 private:
  SearchLimits limits_;
};

// Returns the present placement, as far as it is still possible.
Assignment AsItIs(const Problem& problem);

// Notes for each replica, in the order of their names, what the plan would be
// worth with it on each of the other groups that take it.
void NoteAlternatives(const Assignment& a, Journal* journal);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_FINESERVE_OPT_POLICY_H_
