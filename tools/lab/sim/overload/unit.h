#ifndef TOOLS_LAB_SIM_OVERLOAD_UNIT_H_
#define TOOLS_LAB_SIM_OVERLOAD_UNIT_H_

// Requests and the replicas that run them, as the simulated cluster sees them.
// Times in µs, KV in tokens.

#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

#include "daemon/scheduling/local/predict/peer_reads.h"
#include "daemon/scheduling/overload/drop_plan.h"
#include "tools/lab/sim/overload/step_cost.h"

namespace fineserve::sim {

constexpr double kBlockTokens = 16;
constexpr double kWatermark = .01;  // vLLM keeps so much for what runs

struct Sequence {
  size_t index = 0;
  double arrival = 0;
  double prompt = 0, output = 0;
  double target = 0;  // tokens to fill before it decodes
  double planned = 0, filled = 0, generated = 0;
  double held = 0;     // tokens of KV
  double ready = 0;    // not before
  double in_host = 0;  // tokens that were swapped out
  uint32_t slot = 0;
  uint32_t in_flight = 0;
  bool runs = false;
  bool moves = false;  // to another replica, after the step under way
  double first = -1, end = -1;

  bool decodes() const { return planned >= target; }
  double length() const { return prompt + generated; }
};

// In whole blocks.
inline double Rounded(double tokens) {
  return std::ceil(tokens / kBlockTokens) * kBlockTokens;
}

// Waiting sequences, in the order in which they will run. A sequence does not
// grow while it waits, so the KV that all of them need is a running sum; adding
// it up each time would be slow for a long queue.
class Queue {
 public:
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  Sequence* front() const { return all_.front(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  double tokens() const { return tokens_; }  // of KV

  void PushBack(Sequence* q) {
    all_.push_back(q);
    tokens_ += Tokens(*q);
  }
  void PushFront(Sequence* q) {
    all_.push_front(q);
    tokens_ += Tokens(*q);
  }
  Sequence* PopFront() {
    Sequence* const q = all_.front();
    all_.pop_front();
    tokens_ -= Tokens(*q);
    return q;
  }

 private:
  static double Tokens(const Sequence& q) { return Rounded(q.length() + 1); }

  std::deque<Sequence*> all_;
  double tokens_ = 0;  // whole blocks, so the sum is exact
};

struct Chunk {
  Sequence* sequence;
  double tokens;
  bool decodes;
};

struct Micro {
  std::vector<Chunk> chunks;
  StepLoad load;
  uint32_t slot = 0;
};

// One replica, or several that run as a pipeline.
struct Unit {
  std::vector<uint32_t> replicas;
  double capacity = 0, used = 0;  // tokens
  Queue waiting, swapped;
  std::vector<Sequence*> running;
  std::vector<double> stage_free;
  std::vector<bool> slot_busy;
  uint32_t in_flight = 0, next_slot = 0;
  bool closing = false;  // forms no batches: it is about to become another
  double link_free = 0;  // end of an exchange or a restoration
  double host_free = 0;  // of the host's link
  double busy_since = 0;
  double changed = -1e12;  // last drop or restoration
  bool restoring = false;
  // Ours.
  overload::Loans loans;
  sched::PeerReads reads;
  // Decaying sums over the last ten seconds.
  double freed = 0, steps = 0, full_steps = 0, decayed_at = 0;
  bool alive = true;

  size_t stages() const { return replicas.size(); }
};

inline bool Fits(const Unit& u, double tokens) {
  return u.used + tokens <= (1 - kWatermark) * u.capacity;
}

// Makes the sequence run on the unit, holding KV for `tokens` tokens.
inline void Enter(Unit* u, Sequence* q, double tokens, uint32_t slot) {
  u->used += tokens;
  q->held = tokens;
  q->slot = slot;
  q->runs = true;
  u->running.push_back(q);
}

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_OVERLOAD_UNIT_H_
