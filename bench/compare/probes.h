#ifndef BENCH_COMPARE_PROBES_H_
#define BENCH_COMPARE_PROBES_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "tools/lab/sim/gpu/setup.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {

// Pure functions for probes: requests that find their engine idle, which show
// how long a request takes besides its step. They are part of both runs, since
// proxy and scheduler learn from them.

// The trace begins after this time, in s.
inline constexpr double kProbeSeconds = 10;

// In this time, the engines fill up and the scheduler learns; requests before
// kFromSeconds do not count.
inline constexpr double kWarmSeconds = 10;
inline constexpr double kFromSeconds = kProbeSeconds + kWarmSeconds;

// Returns one request at a time to the engine of each of these models in turn
// (of all models if none is given), and then the trace.
workload::Trace AfterProbes(const workload::Trace& trace,
                            std::vector<uint32_t> models = {});

// Returns the times on the path, as the probes of such a run measured them;
// nullopt if no probe was answered. Splits the median evenly, since only the
// sum can be measured.
absl::optional<sim::PathTimes> PathOf(
    const std::vector<workload::Outcome>& outcomes);

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_PROBES_H_
