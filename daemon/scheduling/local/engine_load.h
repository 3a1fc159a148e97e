#ifndef DAEMON_SCHEDULING_LOCAL_ENGINE_LOAD_H_
#define DAEMON_SCHEDULING_LOCAL_ENGINE_LOAD_H_

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>

#include "absl/types/optional.h"
#include "daemon/contract/verdict/verdict.h"
#include "daemon/scheduling/local/backlog.h"
#include "daemon/scheduling/local/kv_booking.h"
#include "daemon/scheduling/local/kv_room.h"
#include "daemon/scheduling/local/policy/adaptive_batch.h"
#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/predictor.h"

namespace fineserve::sched {

// A model that is served, with its SLOs.
struct ModelSpec {
  std::string name;
  Micros slo_ttft = 0;
  Micros slo_tpot = 0;        // 0: none
  uint32_t chunk_tokens = 0;  // an engine's tokens a step
  uint32_t max_batch = 0;     // sequences an engine runs together
  Profile profile;
};

// A request's needs of an engine.
struct Demand {
  uint32_t prompt_tokens = 0;
  uint32_t growth_tokens = 0;  // that it will generate; ≤ kHorizonTokens
  Micros slo_tpot = 0;         // 0: none
};

using verdict::WaitedFor;

// Returns the tokens to keep free for a request's further output: the average
// output of its model's requests, but at most what the request may still
// generate, and no further ahead than a horizon within which others end.
// `max_tokens` 0: no limit.
uint32_t GrowthTokens(uint32_t expected_output, uint32_t generated,
                      uint32_t max_tokens);

// The requests sent to an engine, and the capacity that they leave. KV is
// booked before a request is sent, so that at any later time the running
// requests are expected to have room for their prompts, tails and output
// (kv_booking.h). So an engine rarely queues or preempts a request. `model` is
// the same in every call. Confined to one thread.
class EngineLoad {
 public:
  // `learnt`: what was learnt about the engine before.
  explicit EngineLoad(const Corrections& learnt = {}) : learnt_(learnt) {}

  void SetKv(KvRoom room) { room_ = room; }
  const KvRoom& kv() const { return room_; }

  // Returns N_max − running and T_max − backlog, from compute and memory.
  Caps LiveCaps(const ModelSpec& model, Micros now) const;

  // Returns the reason why a request cannot start at once; kNothing if it can.
  // It can start if it is within the caps (a prompt longer than T_max only on
  // an engine that fills nothing else), and its KV is free.
  WaitedFor Lacks(const ModelSpec& model, const Demand& demand,
                  Micros now) const;
  bool Takes(const ModelSpec& model, const Demand& demand, Micros now) const {
    return Lacks(model, demand, now) == WaitedFor::kNothing;
  }

  Predictor Predict(const ModelSpec& model, Micros now) const;

  // Returns the estimated µs until `ends` (≥ 1) of the running requests have
  // ended, by their expected lengths. Requests that follow them are assumed to
  // be equally long. 0 if none runs.
  Micros EndsIn(const ModelSpec& model, uint32_t ends) const;

  void Start(RequestId id, const ModelSpec& model, const Demand& demand,
             Micros now);
  // Adds a request that already runs and whose prompt is filled, since an
  // earlier scheduler sent it.
  void Adopt(RequestId id, const Demand& demand);
  // Records that the first token of the request came. Returns false if it was
  // seen before.
  bool FirstToken(RequestId id, Micros now);
  // Records that the whole answer is there at `now`; to be called before
  // Finish. Learns from it how long steps take. If the first token was not
  // seen, returns when it most likely came, assuming that prompt and output
  // each took the predicted part of the answer's time. nullopt if it was seen.
  absl::optional<Micros> CameWhole(RequestId id, const ModelSpec& model,
                                   uint32_t output_tokens, Micros now);
  // Records that the request has `generated` tokens, and keeps `growth` more
  // free for it.
  void Progress(RequestId id, uint32_t generated, uint32_t growth);
  void Finish(RequestId id);

  uint32_t running() const { return static_cast<uint32_t>(running_.size()); }
  double kappa() const { return learnt_.prefill.kappa(); }  // of TTFT
  const Corrections& learnt() const { return learnt_; }
  // Booked for what runs.
  uint64_t held_tokens() const { return booking_.Tokens(); }
  uint64_t free_tokens() const;

 private:
  struct Running {
    Demand demand;
    KvClaim claim;
    uint32_t generated = 0;  // tokens
    Micros predicted = 0;    // TTFT with κ = 1
    bool guessed = false;    // by a guessed profile
    bool seen = false;       // its first token
    // When it started or, once its first token is seen, when that came; nullopt
    // if it was adopted. `sequence_us` is sequence_us_ at that time.
    absl::optional<Micros> since;
    double sequence_us = 0;
  };
  // Books what the request takes.
  Running& Enter(RequestId id, const Demand& demand, bool seen);
  // Books what the request takes from now on. Its former claim must be removed
  // first.
  void Book(Running* r, uint32_t growth);
  // Returns the model's profile, including this engine's reads from another
  // GPU.
  Profile ProfileOf(const ModelSpec& model) const;
  Predictor Uncorrected(const ModelSpec& model) const;
  // Records that the request fills or answers from now on.
  void Mark(Running* r, Micros now);
  // Adds the time until `now` for the running requests.
  void CountTime(Micros now);
  // Returns the time for the tokens after the first one with κ = 1, beside as
  // many sequences as ran on average since the request was marked.
  double DecodeTime(const Running& r, const ModelSpec& model,
                    uint32_t output_tokens, Micros now) const;
  // Returns the largest number of sequences that may run together if `slo_tpot`
  // is the strictest SLO among them; 0: none of them has an SLO.
  uint32_t MostSequences(const ModelSpec& model, Micros slo_tpot) const;

  KvRoom room_;
  std::unordered_map<RequestId, Running> running_;
  std::multiset<Micros> tpots_;  // of the running requests that have one
  Backlog backlog_;
  Corrections learnt_;
  double sequence_us_ = 0;  // Σ running · time, until counted_to_
  Micros counted_to_ = 0;
  KvBooking booking_;  // the claims of running_
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_ENGINE_LOAD_H_
