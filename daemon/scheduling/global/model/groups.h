#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_GROUPS_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_GROUPS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "daemon/scheduling/global/model/assignment.h"

namespace fineserve::plan {

// Visits combinations of `tp` GPUs of a node, among those for which `takes` is
// true. GPUs with the same memory and the same residents (and pins) are
// interchangeable, so only the first few of them are combined: a node of eight
// empty GPUs has one group of four, not 70. The combinations are in ascending
// order of the first GPU of each class.
void ForEachCombination(const Assignment& a, uint32_t node, uint32_t tp,
                        absl::FunctionRef<bool(uint32_t gpu)> takes,
                        absl::FunctionRef<void(const Group&)> visit);

// Visits the groups of a node that the replica may use, of GPUs for which
// `takes` is true.
void ForEachGroupAmong(const Assignment& a, uint32_t replica, uint32_t node,
                       absl::FunctionRef<bool(uint32_t gpu)> takes,
                       absl::FunctionRef<void(const Group&)> visit);

// Visits the sets of GPUs, in ascending order, of which any `tp` form a group
// that the replica may use: for each node, all GPUs that it may use, or each of
// its groups.
void ForEachChoice(const Problem& p, const Replica& r,
                   absl::FunctionRef<void(absl::Span<const uint32_t>)> visit);

// Visits the groups of a node that could host the replica.
void ForEachGroupOfNode(const Assignment& a, uint32_t replica, uint32_t node,
                        Charge charge,
                        absl::FunctionRef<void(const Group&)> visit);

// All nodes, in order.
void ForEachGroup(const Assignment& a, uint32_t replica, Charge charge,
                  absl::FunctionRef<void(const Group&)> visit);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_GROUPS_H_
