#ifndef TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_SCHEDULER_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_SCHEDULER_H_

// Continuous batching with chunked prefill as vLLM's V1 scheduler does it
// (vllm/v1/core/sched/scheduler.py, 0.32.0): running sequences first, in
// order, then waiting ones, all out of one budget of tokens; when blocks run
// out, the sequence that was started last is freed and computed again.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tools/lab/engines/tinyserve/engine/sequence.h"
#include "tools/lab/engines/tinyserve/kv/block_source.h"

namespace tinyserve {

struct Limits {
  uint32_t block_tokens = 16;
  uint32_t most_sequences = 64;  // --max-num-seqs
  uint32_t step_tokens = 2048;   // --max-num-batched-tokens
  uint32_t model_tokens = 4096;  // --max-model-len
};

// Positions [sequence->computed, sequence->computed + tokens) are computed in
// this step; their blocks are there.
struct Work {
  Sequence* sequence;
  uint32_t tokens;

  bool chooses() const { return tokens == sequence->left_to_compute(); }
};

// Confined to the engine's thread. Uses no clock and no device: the same calls
// give the same steps.
class Scheduler {
 public:
  Scheduler(const Limits& limits, BlockSource* blocks);

  void Add(std::unique_ptr<Sequence> sequence);

  // Returns the work of a step, in the order of the running list. Empty if no
  // request waits or no blocks are free.
  std::vector<Work> Schedule();

  // Removes a finished or aborted sequence and frees its blocks. False if no
  // sequence has that id.
  bool Remove(uint64_t id);

  void RemoveAll();

  size_t running() const { return running_.size(); }
  size_t waiting() const { return waiting_.size(); }
  uint64_t preemptions() const { return preemptions_; }
  // Null if there is none.
  Sequence* FirstRunning();

 private:
  using Sequences = std::deque<std::unique_ptr<Sequence>>;

  void ScheduleRunning(uint32_t* budget, std::vector<Work>* step);
  void ScheduleWaiting(uint32_t* budget, std::vector<Work>* step);
  bool Provide(Sequence* sequence, uint32_t tokens);
  void PreemptLast();
  uint32_t BlocksFor(uint64_t tokens) const;
  void TellExpectation();

  const Limits limits_;
  BlockSource* const blocks_;
  Sequences waiting_;
  Sequences running_;  // in the order in which they were started
  uint64_t preemptions_ = 0;
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_SCHEDULER_H_
