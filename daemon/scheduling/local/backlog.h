#ifndef DAEMON_SCHEDULING_LOCAL_BACKLOG_H_
#define DAEMON_SCHEDULING_LOCAL_BACKLOG_H_

#include <cstdint>
#include <deque>

#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/predictor.h"

namespace fineserve::sched {

// The prompts that were sent to an engine and are not prefilled yet. The engine
// fills them in order, so a first token shows that the prompts before it are
// done too. Between first tokens, and for answers that show none (not
// streamed), the rest is predicted; once that is 0, all prompts count as done,
// even if some first token is still to come. Confined to one thread.
class Backlog {
 public:
  void Add(RequestId id, uint32_t tokens, Micros now, const Predictor& engine);

  // Records that the first token of the request came.
  void FirstToken(RequestId id, Micros now);

  // Records that the request ended or was cancelled; prompts before it may
  // still be filling.
  void Remove(RequestId id);

  // Returns the tokens left at `now`, on an engine whose steps `engine`
  // predicts.
  uint64_t Tokens(Micros now, const Predictor& engine) const;

 private:
  struct Prompt {
    RequestId id;
    uint32_t tokens;
  };
  std::deque<Prompt>::iterator Find(RequestId id);

  std::deque<Prompt> prompts_;  // in the order sent
  uint64_t tokens_ = 0;         // Σ prompts_
  Micros since_ = 0;            // when the engine began with the first
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_BACKLOG_H_
