#ifndef DAEMON_SCHEDULING_GLOBAL_SCORE_CONTESTED_SCORE_H_
#define DAEMON_SCHEDULING_GLOBAL_SCORE_CONTESTED_SCORE_H_

#include <cstdint>

#include "daemon/scheduling/global/model/assignment.h"
#include "daemon/scheduling/global/score/efficiency.h"
#include "daemon/scheduling/global/score/group_table.h"

namespace fineserve::plan {

// Returns K_rem: the bytes of KV left on the group's fullest GPU once F_M of
// the replica and of its residents is charged. The replica is not there yet.
double ContestedBytes(const Assignment& a, uint32_t replica,
                      const Group& group);

// Returns the paper's Eq. 3: the mean μ of all models on the group, including
// the model to place, times K_rem. A model on several of the group's GPUs
// counts once. The group's state is that of Charge::kFootprint.
double MeanScore(const Replica& comes, const GroupState& group,
                 Efficiency efficiency);

// Returns Eqs. 1-2 as printed: the most tokens/s that K_rem adds to what F_M
// already gives, shared out by water-filling over X(b). Each model's part ends
// where it could serve `burst` times its rate (F_M alone meets the rate, so
// without a burst every byte beyond it would be worth nothing).
double ExactScore(const Assignment& a, uint32_t replica, const Group& group);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_SCORE_CONTESTED_SCORE_H_
