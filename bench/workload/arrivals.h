#ifndef BENCH_WORKLOAD_ARRIVALS_H_
#define BENCH_WORKLOAD_ARRIVALS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/workload/trace.h"

namespace fineserve::workload {

// Pure functions; the same seed gives the same trace.

// One model's part of a made load.
struct Stream {
  std::string model;
  double per_second = 0;
};

// Poisson arrivals, each stream on its own, with lengths drawn from `lengths`
// (not empty).
Trace Poisson(const std::vector<Stream>& streams, double seconds,
              const std::vector<Lengths>& lengths, uint64_t seed);

// `factor` times the load with the pattern in time kept: each arrival comes
// ⌊factor⌋ times and once more with the probability of the rest. The first
// stays where it is; copies come anywhere within the same second and take the
// lengths of any arrival of their model, so that no burst of twins appears
// which the real load does not have. A factor below 1 thins at random.
Trace Scale(const Trace& trace, double factor, uint64_t seed);

// The first `seconds` of it.
Trace FirstSeconds(const Trace& trace, double seconds);

// `speed` times faster; lengths stay.
Trace Faster(const Trace& trace, double speed);

// The trace's models served by others: `to` says by which one each name goes;
// arrivals of names that are not in it are left out. InvalidArgument if a name
// in `to` is not in the trace.
struct Renamed {
  std::string from, to;
};
absl::StatusOr<Trace> Rename(const Trace& trace,
                             const std::vector<Renamed>& names);

}  // namespace fineserve::workload

#endif  // BENCH_WORKLOAD_ARRIVALS_H_
