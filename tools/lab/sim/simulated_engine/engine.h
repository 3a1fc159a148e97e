#ifndef TOOLS_LAB_SIM_SIMULATED_ENGINE_ENGINE_H_
#define TOOLS_LAB_SIM_SIMULATED_ENGINE_ENGINE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "daemon/scheduling/local/predict/ids.h"
#include "tools/lab/sim/simulated_engine/slab_blocks.h"
#include "tools/lab/sim/simulated_engine/step_time.h"

namespace fineserve::sim {

// Start-up limits of an engine.
struct EngineLimits {
  uint32_t chunk_tokens = 2048;  // of one step
  uint32_t max_batch = 256;      // sequences that run together
  uint32_t block_tokens = 16;
};

// A request as its engine sees it.
struct Work {
  sched::RequestId id{0};
  uint32_t prompt = 0;  // tokens
  uint32_t cached = 0;  // of the prompt, which need no computing; < prompt
  uint32_t output = 0;  // tokens that it will generate; ≥ 1
};

// A simulated engine: continuous batching with chunked prefill as vLLM's V1
// scheduler does it (facts in tools/lab/engines/tinyserve/engine/scheduler.h).
// Running sequences come first, in the order in which they were started, then
// waiting ones, all out of one budget of tokens a step. Blocks are taken as
// tokens are computed; if there is none, the sequence that was started last is
// freed and computed again later. Tokens from the prefix cache are not
// computed, but their blocks count.
//
// It steps in runs: while only decoding sequences run, one step is like the
// next, so several are begun at once (Begin), up to the first that ends a
// sequence. A run can be cut at the end of its step under way. The result is
// the same as step by step (engine_test.cc).
//
//   Plan → Begin → [AdvanceTo, Cut] → End → Plan → …
//
// Time is in µs. Confined to one thread.
class Engine {
 public:
  struct Token {
    sched::RequestId id;
    uint32_t generated;  // by now; 1: it is the first
    bool last;
  };

  // `blocks` must outlive the engine and serve only this engine.
  Engine(const EngineLimits& limits, const StepTime& step_time,
         SlabBlocks* blocks)
      : limits_(limits), step_time_(step_time), blocks_(blocks) {}

  // It waits for its first step.
  void Send(const Work& work) { waiting_.push_back({work}); }

  bool idle() const { return running_.empty() && waiting_.empty(); }
  bool stepping() const { return steps_ > 0; }
  size_t running() const { return running_.size(); }
  uint64_t preemptions() const { return preemptions_; }
  uint64_t steps() const { return steps_done_; }
  uint64_t tokens() const { return tokens_; }  // generated
  // Returns the number of blocks that the prompts of waiting sequences take.
  uint64_t waiting_blocks() const;

  // Chooses what the next step computes, and takes its blocks. False if it can
  // compute nothing: it is idle, or no block is free.
  bool Plan();
  // Begins the planned step, or a run of at most `most_steps` steps that takes
  // at most `most_blocks` blocks beyond those of its first step.
  void Begin(Micros now, double slowdown, uint32_t most_steps,
             uint64_t most_blocks);
  // End of the run.
  Micros ends() const { return ends_; }
  // Updates sequences and blocks to `now`, which must be within the run.
  // `begun` says whether a step that begins now has begun.
  void AdvanceTo(Micros now, bool begun);
  // Ends the run with the step under way. If a step ends now, the run ends now,
  // unless the next step has `begun`.
  void Cut(Micros now, bool begun);
  // Cuts the run and stretches the rest of the step under way by `ratio`,
  // rounded up: no engine is ever faster than its GPU.
  void Slow(Micros now, bool begun, double ratio);
  // Ends the run at ends(). Adds the first and last tokens of sequences to
  // *tokens.
  void End(std::vector<Token>* tokens);

  // Calls on_sequence(id) for each sequence whose answer is not complete.
  template <typename OnSequence>
  void ForEach(OnSequence on_sequence) const {
    for (const Sequence& s : running_) on_sequence(s.work.id);
    for (const Sequence& s : waiting_) on_sequence(s.work.id);
  }
  // Calls on_sequence(id, tokens generated) for each sequence that has a first
  // token.
  template <typename OnSequence>
  void ForEachDecoding(OnSequence on_sequence) const {
    for (const Sequence& s : running_) {
      if (s.generated > 0) on_sequence(s.work.id, s.generated);
    }
  }

 private:
  struct Sequence {
    Work work;
    uint32_t computed = 0;   // positions whose KV is written
    uint32_t generated = 0;  // tokens
    uint32_t planned = 0;    // positions of the step
    uint32_t held_blocks = 0;
    SlabBlocks::Runs blocks = {};

    uint32_t left() const { return work.prompt + generated - computed; }
    bool decodes() const { return planned == 1 && computed >= work.prompt; }
  };

  uint32_t BlocksFor(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + limits_.block_tokens - 1) /
                                 limits_.block_tokens);
  }
  bool Provide(Sequence* sequence, uint32_t tokens);
  void PlanRunning(uint32_t* budget);
  void PlanWaiting(uint32_t* budget);
  void PreemptLast();
  uint64_t BlocksOfRun(uint64_t steps) const;
  uint32_t StepsOfRun(uint32_t most_steps, uint64_t most_blocks) const;
  void TakeBlocksOfStep(uint32_t step);

  const EngineLimits limits_;
  const StepTime step_time_;
  SlabBlocks* const blocks_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;  // in the order started
  // The run under way; steps_ 0: none.
  Micros begun_at_ = 0;
  Micros step_us_ = 0;
  Micros ends_ = 0;
  uint32_t steps_ = 0;
  uint32_t completed_ = 0;  // steps, as the sequences show
  uint32_t provided_ = 0;   // steps that have their blocks
  uint64_t preemptions_ = 0;
  uint64_t steps_done_ = 0;
  uint64_t tokens_ = 0;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_SIMULATED_ENGINE_ENGINE_H_
