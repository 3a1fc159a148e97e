#ifndef BENCH_COMPARE_PROBES_H_
#define BENCH_COMPARE_PROBES_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "tools/lab/sim/gpu/setup.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {

// Pure functions: requests that find their engine idle, which show how long a
// request is under way besides its step. They are part of the run on either
// side, since proxy and scheduler learn from them.

// The trace begins after this time.
inline constexpr double kProbeSeconds = 10;

// For this time the engines fill up and the scheduler learns; requests before
// kFromSeconds do not count.
inline constexpr double kWarmSeconds = 10;
inline constexpr double kFromSeconds = kProbeSeconds + kWarmSeconds;

// One request at a time to the engine of each of these models in turn (none
// given: of all), and then the trace.
workload::Trace AfterProbes(const workload::Trace& trace,
                            std::vector<uint32_t> models = {});

// Times on the path, as the probes of such a run measured them; nothing if no
// probe was answered. The median is split evenly, for only the sum can be seen.
absl::optional<sim::PathTimes> PathOf(
    const std::vector<workload::Outcome>& outcomes);

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_PROBES_H_
