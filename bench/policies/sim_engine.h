#ifndef BENCH_POLICIES_SIM_ENGINE_H_
#define BENCH_POLICIES_SIM_ENGINE_H_

#include <cstdint>
#include <vector>

#include "daemon/sched/engine_load.h"
#include "daemon/sched/predict/ids.h"

namespace fineserve::bench {

// A simulated engine with continuous batching and chunked prefill.
class SimEngine {
 public:
  SimEngine(uint32_t chunk_tokens, sched::Profile truth, uint64_t kv_tokens)
      : chunk_tokens_(chunk_tokens), truth_(truth), kv_tokens_(kv_tokens) {}

  void Send(sched::RequestId id, uint32_t input, uint32_t output) {
    sequences_.push_back({id, input, output});
  }

  bool idle() const { return sequences_.empty(); }
  uint64_t preemptions() const { return preemptions_; }

  // Plans a step. Returns how long it takes if it has the GPU to itself, in µs.
  double BeginStep();

  // A token that the planned step generated.
  struct Event {
    sched::RequestId id;
    uint32_t generated;  // tokens so far
    bool first, last;
  };
  std::vector<Event> EndStep();

 private:
  struct Sequence {
    sched::RequestId id;
    uint32_t input;
    uint32_t output;
    uint32_t filled = 0;     // tokens in the KV
    uint32_t generated = 0;  // tokens that were reported
    uint32_t planned = 0;    // tokens of this step
    // How many tokens must be filled before the next one is generated; after a
    // preemption this includes the answer's tokens.
    uint32_t goal() const { return input + generated; }
    bool decodes() const { return generated > 0 && filled + 1 >= goal(); }
  };
  uint64_t Used() const;
  void PlanDecodes();
  void PlanPrefills();

  const uint32_t chunk_tokens_;
  const sched::Profile truth_;
  const uint64_t kv_tokens_;
  std::vector<Sequence> sequences_;  // in the order sent
  uint64_t preemptions_ = 0;
};

}  // namespace fineserve::bench

#endif  // BENCH_POLICIES_SIM_ENGINE_H_
