#ifndef DAEMON_SCHEDULING_GLOBAL_EXACT_POOLED_BOUND_H_
#define DAEMON_SCHEDULING_GLOBAL_EXACT_POOLED_BOUND_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/model/problem.h"

namespace fineserve::plan {

// The number of replicas of a model that a placement hosts.
struct Hosting {
  uint32_t model;
  uint32_t least, most;
};

// Returns an upper bound on the goodput (tokens/s) of every placement that
// hosts this many replicas of these models. It is the dual of the relaxation in
// which all GPUs are one memory, replicas do not slow each other down, and each
// model has the number of replicas that pays best. Where pools have been made,
// it is instead the dual of the relaxation in which all KV is one memory and
// weights take nothing, if that is less. A replica's own KV is at most what an
// empty group has for it. By weak duality every price gives a bound; the search
// for the best price is bisection.
double PooledBound(const Problem& problem,
                   const std::vector<Hosting>& hostings);

// Returns the bytes of the largest KV that the replica could have on each GPU
// of a group if it were alone there; negative if no group holds it.
double MostKv(const Problem& problem, uint32_t replica);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_EXACT_POOLED_BOUND_H_
