#ifndef TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_ENGINE_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/lab/engines/tinyserve/engine/metrics.h"
#include "tools/lab/engines/tinyserve/engine/scheduler.h"
#include "tools/lab/engines/tinyserve/engine/sequence.h"
#include "tools/lab/engines/tinyserve/engine/step_time.h"
#include "tools/lab/engines/tinyserve/kv/block_source.h"
#include "tools/lab/engines/tinyserve/kv/kv_store.h"
#include "tools/lab/engines/tinyserve/kv/leased_blocks.h"
#include "tools/lab/engines/tinyserve/kv/weights.h"

namespace tinyserve {

struct EngineSettings {
  std::string model;
  Limits limits;
  StepCost cost;
  // How many blocks of a sequence each step reads, in turn, besides the newest
  // one. The step that ends an answer reads all.
  uint32_t checked_blocks = 2;
};

// The engine's loop: takes requests in, schedules a step, writes its KV, reads
// KV back, chooses tokens from what was read, and hands them out when the
// modelled step is over.
//
// Run() is called by one thread, the engine's; any thread may call the other
// public methods. The blocks, the store and the weights must outlive the engine
// and serve no other.
class Engine {
 public:
  Engine(const EngineSettings& settings, BlockSource* blocks, KvStore* store,
         Weights* weights);

  // Queues a request and returns its id. `listener` gets the tokens on the
  // engine's thread. The prompt and wanted.most_tokens must be at least one
  // token each and together fit the model.
  uint64_t Submit(const std::vector<Token>& prompt, const Wanted& wanted,
                  Listener listener);

  // Aborts a request and frees its blocks before the next step. The listener
  // may still be called for the step under way. Ignores an unknown id.
  void Abort(uint64_t id);

  // Runs `task` on the engine's thread between two steps.
  void Do(std::function<void()> task);

  // Changes a bit of the KV of the sequence that has run longest; false if no
  // sequence runs. Call on the engine's thread.
  bool Corrupt();

  // For tests; call both on the engine's thread. HoldAfter stops the engine
  // between two steps once the longest-running sequence has chosen `tokens`
  // tokens (at least one), then calls `holding`. Until Continue, requests are
  // accepted and aborted, but nothing is computed.
  void HoldAfter(uint32_t tokens, std::function<void()> holding);
  void Continue();

  Metrics metrics();
  const EngineSettings& settings() const { return settings_; }

  // Call before Run: makes the engine look at its leases even when it is idle.
  void WatchLeases() { watches_leases_ = true; }

  // Runs until Stop(), and then drops all requests.
  void Run();
  void Stop();

 private:
  // A sequence that chooses a token in this step, and the state that was read
  // from its KV.
  struct Choice {
    Sequence* sequence;
    State read;
  };

  using Tasks = std::vector<std::function<void()>>;
  enum class Wait { kNot, kBriefly, kUntilPosted };

  // Returns false when the engine must stop.
  bool TakeInbox(Wait wait, Tasks* tasks);
  Wait StepOrRest();
  void Enlist(uint64_t id, Time arrived, const std::vector<Token>& prompt,
              const Wanted& wanted, const Listener& listener);
  void GiveUp(uint64_t id);
  void Step(const std::vector<Work>& step);
  void HoldIfAsked();
  std::vector<Choice> Execute(const std::vector<Work>& step);
  static Finish FinishOf(const Sequence& sequence, Token token);
  void QueueReads(Choice* choice, bool all);
  void ReadBlock(Choice* choice, uint32_t index);
  void AwaitEnd(Time end);
  bool IsLast(const Sequence& sequence) const;
  void HandOut(const std::vector<Choice>& choices);
  void CountToken(Sequence* sequence, Time now, Finish finish);
  void CountWork(const std::vector<Work>& step, Time now);
  void ShowState();

  const EngineSettings settings_;
  BlockSource* const blocks_;
  KvStore* const store_;
  Weights* const weights_;
  bool watches_leases_ = false;
  // Confined to the engine's thread.
  std::unique_ptr<LeaseWatch> watch_;
  Scheduler scheduler_;
  StepPacer pacer_;
  uint32_t hold_after_ = 0;  // tokens; 0: never
  std::function<void()> on_holding_;
  bool holding_ = false;

  std::mutex mutex_;  // guards what follows
  std::condition_variable posted_;
  Tasks inbox_;
  bool stopping_ = false;
  uint64_t next_id_ = 1;
  Metrics metrics_;
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_ENGINE_H_
