#ifndef BENCH_COMPARE_LOADS_H_
#define BENCH_COMPARE_LOADS_H_

#include <cstdint>
#include <vector>

#include "bench/compare/compared_fleet.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {

// Pure functions: requests to the models of ComparedFleet; the same seed gives
// the same trace.

// Cut to what the fleet's engines take.
workload::Lengths Cut(workload::Lengths lengths);

// Demand of the requests of `seconds` on the pools, as a part of their
// capacity: each request has the blocks of its prompt and its whole answer,
// which admission books, for as long as an engine that does nothing else needs
// for it (Little's law). At 1 the pools are booked all the time if no request
// comes at a bad time.
double LoadOf(const workload::Trace& trace, double seconds,
              const FleetShape& shape = {});

// Poisson arrivals, equally many for each model.
workload::Trace Steady(const std::vector<workload::Lengths>& lengths,
                       double load, double seconds, uint64_t seed,
                       const FleetShape& shape = {});

// The arrivals of a real trace in their pattern. Each model gets another part
// of it: the first one begins with the trace, each next one (with four models)
// a quarter later.
workload::Trace Bursty(const workload::Trace& real, double load, double seconds,
                       uint64_t seed, const FleetShape& shape = {});

// The trace's `seconds` from `from_s` on, of those models that are asked most
// then, the first one most.
workload::Trace Busiest(const workload::Trace& real, double from_s, double load,
                        double seconds, uint64_t seed, const FleetShape& shape);

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_LOADS_H_
