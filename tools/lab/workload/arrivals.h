#ifndef TOOLS_LAB_WORKLOAD_ARRIVALS_H_
#define TOOLS_LAB_WORKLOAD_ARRIVALS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::workload {

// Pure functions; the same seed gives the same trace.

// One model's part of a generated load.
struct Stream {
  std::string model;
  double per_second = 0;
};

// Generates Poisson arrivals, independent for each stream, with lengths drawn
// from `lengths`, which must not be empty.
Trace Poisson(const std::vector<Stream>& streams, double seconds,
              const std::vector<Lengths>& lengths, uint64_t seed);

// Multiplies the load by `factor` and keeps its pattern in time: each arrival
// comes ⌊factor⌋ times, and once more with the probability of the remaining
// fraction. The first copy keeps its time. The other copies come anywhere
// within the same second and take the lengths of a random arrival of their
// model, so that they add no bursts of equal requests. A factor below 1 drops
// arrivals at random.
Trace Scale(const Trace& trace, double factor, uint64_t seed);

// Combines both loads in time; no model may be in both.
Trace Beside(const Trace& a, const Trace& b);

// Returns the first `seconds` of the trace.
Trace FirstSeconds(const Trace& trace, double seconds);
// Returns `seconds` of the trace from `from_s` on; times then count from
// `from_s`.
Trace Window(const Trace& trace, double from_s, double seconds);

// Plays the trace `speed` times faster; lengths stay the same.
Trace Faster(const Trace& trace, double speed);

// Renames the trace's models, and drops arrivals of models that are not in the
// list. Returns InvalidArgument if a listed model is not in the trace.
struct Renamed {
  std::string from, to;
};
absl::StatusOr<Trace> Rename(const Trace& trace,
                             const std::vector<Renamed>& names);

}  // namespace fineserve::workload

#endif  // TOOLS_LAB_WORKLOAD_ARRIVALS_H_
