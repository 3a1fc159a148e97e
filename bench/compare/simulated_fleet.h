#ifndef BENCH_COMPARE_SIMULATED_FLEET_H_
#define BENCH_COMPARE_SIMULATED_FLEET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {

struct SimulatedRun {
  std::vector<workload::Outcome> outcomes;  // in the trace's order
  double seconds = 0;
  uint64_t preemptions = 0;
  uint64_t activations = 0;
};

// Simulates this trace with these files, in this process. Returns the errors of
// reading the files and of the simulation.
absl::StatusOr<SimulatedRun> Simulate(const std::string& fleet_path,
                                      const std::string& site_path,
                                      const workload::Trace& trace);

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_SIMULATED_FLEET_H_
