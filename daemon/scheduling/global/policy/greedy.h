#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_GREEDY_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_GREEDY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/global/model/groups.h"
#include "daemon/scheduling/global/policy/journal.h"
#include "daemon/scheduling/global/score/group_table.h"

namespace fineserve::plan {

// Returns all replicas, sorted by `key` from the greatest; equal ones by name.
std::vector<uint32_t> Descending(const Problem& problem,
                                 absl::FunctionRef<double(const Replica&)> key);

// Fitness of a group for a replica; `tie` decides between equal scores. More is
// better. If there is no Score, the group is not a candidate.
struct Score {
  double score = 0;
  double tie = 0;
};
using Scorer = absl::FunctionRef<absl::optional<Score>(
    const Assignment&, uint32_t replica, const Group&)>;

// Returns the most replicas that any GPU of the group has.
size_t Crowd(const Assignment& a, const Group& group);
// Returns the least room of the group's GPUs, in bytes.
double LeastRoom(const Assignment& a, const Group& group);

// Puts each replica of `order` on the best of the groups that take it, or on
// the first of equally good ones. A replica that finds no group is left out.
void PlaceInOrder(const std::vector<uint32_t>& order, Charge charge,
                  Scorer scorer, Assignment* a, Journal* journal);

// Does the same if the score follows from the group's state and the model to
// place. Results for nodes that have not changed are kept, so that a cluster of
// thousands is planned in seconds.
using StateScorer =
    absl::FunctionRef<Score(const Replica& comes, const GroupState& group)>;
void PlaceByState(const std::vector<uint32_t>& order, Charge charge,
                  Efficiency efficiency, StateScorer scorer, Assignment* a,
                  Journal* journal);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_GREEDY_H_
