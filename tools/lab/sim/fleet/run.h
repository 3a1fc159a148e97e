#ifndef TOOLS_LAB_SIM_FLEET_RUN_H_
#define TOOLS_LAB_SIM_FLEET_RUN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "tools/lab/sim/fleet/world.h"
#include "tools/lab/sim/gpu/gpu.h"
#include "tools/lab/sim/lead/planning.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::sim {

struct RunOptions {
  // Ends unfinished requests this many seconds after the last arrival; 0:
  // never.
  double limit_s = 0;
  // True if clients send max_tokens, equal to the real lengths of their
  // answers.
  bool tells_output = true;
  // True if the first plan stays: no engine moves while the load comes.
  bool frozen = false;
  // Called now and then with the simulated time in seconds and the number of
  // requests that have ended.
  std::function<void(double seconds, uint64_t ended)> on_progress =
      [](double, uint64_t) {};
  // Checks the books of each GPU after each of its events; slow, for tests.
  bool check = false;
};

struct RunResult {
  // In the trace's order. A request that was cut has failed.
  std::vector<workload::Outcome> outcomes;
  std::vector<Gpu::Counters> gpus;
  uint64_t cut = 0;
  double seconds = 0;         // simulated, since the load began
  std::vector<double> kappa;  // of all engines at the end, GPU by GPU
  // Set for a fleet with a planner; its times are since `load_began`.
  absl::optional<PlanRecord> plan;
  Micros load_began = 0;
};

// Sends the trace's requests to the world's GPUs, as the proxy does it: to the
// one that is furthest behind its target rate, or to the one with the least
// predicted TTFT (or load), and to the next if one refuses.
// `model_of[i]` is the world's model for the trace's model i.
//
// If a planner places engines, the load begins once they serve, or when the
// planner's patience with a start ends.
//
// Deterministic: the same world, trace and options give the same result.
// Errors as Gpu::Create's.
absl::StatusOr<RunResult> Run(const World& world, const workload::Trace& trace,
                              const std::vector<uint32_t>& model_of,
                              const RunOptions& options);

// Returns the world's model for each model of the trace, by name.
// InvalidArgument, with the fix, if one is missing.
absl::StatusOr<std::vector<uint32_t>> ModelsOf(const World& world,
                                               const workload::Trace& trace);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_FLEET_RUN_H_
