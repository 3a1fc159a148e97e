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

// Poisson arrivals, independent for each stream, with lengths drawn from
// `lengths`, which must not be empty.
Trace Poisson(const std::vector<Stream>& streams, double seconds,
              const std::vector<Lengths>& lengths, uint64_t seed);

// `factor` times the load with its pattern in time kept: each arrival comes
// ⌊factor⌋ times, and once more with the probability of the rest. The first
// stays where it is. Copies come anywhere within the same second and take the
// lengths of any arrival of their model, so that there is no burst of twins
// that the real load does not have. A factor below 1 thins at random.
Trace Scale(const Trace& trace, double factor, uint64_t seed);

// The first `seconds` of the trace.
Trace FirstSeconds(const Trace& trace, double seconds);

// `speed` times faster; lengths stay.
Trace Faster(const Trace& trace, double speed);

// Renames the trace's models as `to` says; arrivals of models that are not in
// it are left out. InvalidArgument if a name in `to` is not in the trace.
struct Renamed {
  std::string from, to;
};
absl::StatusOr<Trace> Rename(const Trace& trace,
                             const std::vector<Renamed>& names);

}  // namespace fineserve::workload

#endif  // BENCH_WORKLOAD_ARRIVALS_H_
