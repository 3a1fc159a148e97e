#ifndef BENCH_POLICIES_SIM_GPU_H_
#define BENCH_POLICIES_SIM_GPU_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/workload/metrics.h"
#include "bench/workload/trace.h"
#include "daemon/sched/local_scheduler.h"

namespace fineserve::bench {

// A model with one engine on the GPU.
struct SimModel {
  sched::ModelSpec spec;  // as the scheduler knows it
  sched::Profile truth;   // how long its steps really take
  uint64_t kv_tokens = 0;
};

struct SimResult {
  std::vector<workload::Outcome> outcomes;  // in the trace's order
  uint64_t preemptions = 0;  // sequences that an engine had to preempt
  double kappa = 1;          // of the first model, at the end
};

// One GPU with several engines, in virtual time: the daemon's own
// LocalScheduler against engines that do what vLLM does. An engine's step
// prefills what it was sent, in order and in chunks, beside one token for each
// running sequence. If there is no KV for the next tokens, the last sequence is
// preempted and prefilled again later. While n engines work, each step takes n
// times as long (time slices). No time passes between proxy, daemon and engine.
//
// A real GPU differs: attention costs more than per_token, slices are not
// equal, and the host adds time between steps. So this compares policies and
// does not predict a GPU.
SimResult Simulate(const std::vector<SimModel>& models,
                   const workload::Trace& trace, const std::string& policy,
                   double floor_share);

}  // namespace fineserve::bench

#endif  // BENCH_POLICIES_SIM_GPU_H_
