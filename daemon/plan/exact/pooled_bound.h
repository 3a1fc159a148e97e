#ifndef DAEMON_PLAN_EXACT_POOLED_BOUND_H_
#define DAEMON_PLAN_EXACT_POOLED_BOUND_H_

#include <cstdint>
#include <vector>

#include "daemon/plan/model/problem.h"

namespace fineserve::plan {

// How many replicas of a model a placement hosts.
struct Hosting {
  uint32_t model;
  uint32_t least, most;
};

// No placement that hosts so many replicas of these models has more goodput
// (tokens/s) than this: the dual of the relaxation in which all GPUs are one
// memory, nobody slows anybody down, and of each model as many replicas are
// hosted as pay best; or, where pools have been made, of that in which all KV
// is one memory and weights take nothing, if that is less. A replica's own KV
// is at most what an empty group has for it. By weak duality every price gives
// a bound; the search for the best is bisection.
double PooledBound(const Problem& problem,
                   const std::vector<Hosting>& hostings);

// The bytes of the largest KV that the replica could have on each GPU of a
// group, were it alone; negative if it fits nowhere.
double MostKv(const Problem& problem, uint32_t replica);

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_EXACT_POOLED_BOUND_H_
