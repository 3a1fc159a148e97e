#ifndef DAEMON_SCHEDULING_GLOBAL_EXACT_BRANCH_AND_BOUND_H_
#define DAEMON_SCHEDULING_GLOBAL_EXACT_BRANCH_AND_BOUND_H_

#include <cstdint>

#include "daemon/scheduling/global/model/assignment.h"
#include "daemon/scheduling/global/score/goodput.h"

namespace fineserve::plan {

// The placement that hosts the most models and, among those, has the most
// goodput when KV is pooled.
struct Optimum {
  Assignment assignment;
  Worth worth;
  bool proven = false;  // false: the limit came first
  uint64_t visited = 0;
};

// Searches depth first over the replicas, the largest first. For each replica,
// tries every group that takes it (interchangeable GPUs once), and no group.
Optimum FindOptimum(const Problem& problem, const Assignment& start,
                    uint64_t most_visited);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_EXACT_BRANCH_AND_BOUND_H_
