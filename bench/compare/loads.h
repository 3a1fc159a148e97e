#ifndef BENCH_COMPARE_LOADS_H_
#define BENCH_COMPARE_LOADS_H_

#include <cstdint>
#include <vector>

#include "bench/compare/compared_fleet.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {

// Pure functions that make requests to the models of ComparedFleet. The same
// seed gives the same trace.

// Cuts the lengths to what the fleet's engines accept.
workload::Lengths Cut(workload::Lengths lengths);

// Returns the demand of `seconds` of requests on the pools, as a fraction of
// their capacity: each request has the blocks of its prompt and its whole
// answer, which admission books, for as long as an otherwise idle engine needs
// for it (Little's law). At 1, the pools are booked all the time if no request
// comes at a bad time.
double LoadOf(const workload::Trace& trace, double seconds,
              const FleetShape& shape = {});

// Poisson arrivals, with the same number for each model.
workload::Trace Steady(const std::vector<workload::Lengths>& lengths,
                       double load, double seconds, uint64_t seed,
                       const FleetShape& shape = {});

// Arrivals in the pattern of a real trace. Each model gets a different part of
// it: the first one begins with the trace, each next one (with four models) a
// quarter later.
workload::Trace Bursty(const workload::Trace& real, double load, double seconds,
                       uint64_t seed, const FleetShape& shape = {});

// Returns `seconds` of the trace from `from_s` on, for the models that get the
// most requests in that time, the busiest first.
workload::Trace Busiest(const workload::Trace& real, double from_s, double load,
                        double seconds, uint64_t seed, const FleetShape& shape);

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_LOADS_H_
