#ifndef DAEMON_PLAN_EXACT_POOLED_BOUND_H_
#define DAEMON_PLAN_EXACT_POOLED_BOUND_H_

#include <cstdint>
#include <vector>

#include "daemon/plan/model/problem.h"

namespace fineserve::plan {

// No placement of these replicas has more goodput (tokens/s) than this, if all
// of `must` are hosted: the dual of the relaxation in which all GPUs are one
// memory, nobody slows anybody down, and a replica of `may` is hosted only if
// it pays; or, where pools have been made, of that in which all KV is one
// memory and weights take nothing, if that is less. A replica's own KV is at
// most what an empty group has for it. By weak duality every price gives a
// bound; the search for the best is bisection.
double PooledBound(const Problem& problem, const std::vector<uint32_t>& must,
                   const std::vector<uint32_t>& may);

// The bytes of the largest KV that the replica could have on each GPU of a
// group, were it alone; negative if it fits nowhere.
double MostKv(const Problem& problem, uint32_t replica);

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_EXACT_POOLED_BOUND_H_
