#ifndef DAEMON_SCHEDULING_LOCAL_PREDICT_PREDICTOR_H_
#define DAEMON_SCHEDULING_LOCAL_PREDICT_PREDICTOR_H_

#include <cstdint>

#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/peer_reads.h"

namespace fineserve::sched {

// Time of an engine's step, in µs:
//
//   step(q, n) = base + per_token · q + per_sequence · n + peer(q, n)
//
// for q prompt tokens and n running sequences, where peer is the time that
// reads from another GPU add, if there are any. No coefficient is negative.
struct Profile {
  double base_us = 0;
  double per_token_us = 0;
  double per_sequence_us = 0;
  bool guessed = false;  // not of this model
  PeerReads peer = {};   // of one engine, at this moment

  bool operator==(const Profile&) const = default;

  // Returns the time of a step without the time of its prompt tokens.
  double FixedUs(double tokens, double sequences) const {
    return base_us + per_sequence_us * sequences +
           peer.AddedUs(base_us + per_token_us * tokens, tokens + sequences);
  }
  double DecodeUs(double sequences) const { return FixedUs(0, sequences); }
};

// For a model about which nothing is known: an eighth of what Llama-3.1-8B
// takes on an A100. A guess that is too fast admits requests, which then
// correct it; with a guess that is too slow, none would ever start. Heuristic.
inline constexpr Profile kGuess = {1000, 14, 8, true};

// Predicts the first tokens of a batch: the paper's TTFT(R), for chunked
// prefill. An engine fills `chunk_tokens` a step, of which each running
// sequence takes one, and fills prompts in order; so the last first token of a
// batch comes when the backlog and the whole batch are through:
//
//   tokens = backlog + Σ prompts,  steps = ⌈tokens / (chunk − running)⌉
//   fixed = base + per_sequence · running + what reads from a peer add
//   TTFT = back_in + κ · (under_way + Σ fixed of each step + per_token ·
//   tokens)
//
// A prompt that comes to a busy engine waits for the end of the step under way,
// of which half is left on average: under_way = fixed / 2, or 0 if nothing
// runs. Without this term κ would learn that wait from short prompts, where it
// is most of the time, and long prompts would be shed for it. An engine whose
// memory has left the GPU begins when it is back.
//
// A snapshot of one engine at one moment; never decreases with more tokens,
// which AdaptivePolicy relies on. The cost of attention over long prompts is
// left to κ.
struct Predictor {
  Profile profile;
  uint32_t chunk_tokens = 1;
  uint32_t running = 0;         // sequences
  uint64_t backlog_tokens = 0;  // sent to the engine, not yet prefilled
  double kappa = 1;
  Micros back_in = 0;

  // Returns the time from now to the last first token; at most kLongestTtft.
  Micros operator()(uint64_t prompt_tokens) const;

  // Returns the time of a step that fills as much as it may.
  Micros FullStep() const;

  uint32_t budget_tokens() const;  // ≥ 1
};

inline constexpr Micros kLongestTtft = Micros{1} << 50;  // 35 years

// Returns the largest number of sequences that keep a decode step within
// `slo_tpot`; at least 1, since an engine that cannot keep the SLO should still
// serve.
uint32_t SloBatch(const Profile& profile, double kappa, Micros slo_tpot);

// κ: how much slower steps are than the profile says, because of neighbours on
// the GPU or a profile from elsewhere. It is Σ actual over Σ predicted time,
// both sums decaying. So long prompts, which are the purpose of κ, count in
// proportion, and the few milliseconds that every request loses on its way do
// not become a factor. In simulation, up to 1.1 points more requests are on
// time than with the average of ratios. A guessed profile is given up sooner,
// and may be corrected by more.
class Correction {
 public:
  // Decaying sums of times in µs, and the number of observations.
  struct Sums {
    double actual_us = 1, predicted_us = 1;
    uint32_t observed = 0;
  };

  Correction() = default;
  // Continues from the sums of another Correction, none of which is 0, within
  // the bounds of κ.
  explicit Correction(const Sums& sums);

  void Observe(Micros actual, Micros predicted_uncorrected,
               bool guessed = false);
  double kappa() const { return sums_.actual_us / sums_.predicted_us; }
  const Sums& sums() const { return sums_; }

 private:
  Sums sums_;
};

// Corrections learnt from an engine. Prompts and output are corrected
// separately, because the wait of short prompts on their way, or attention over
// long prompts, is not part of a decode step.
struct Corrections {
  Correction prefill;  // by TTFT
  Correction decode;   // by TPOT
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_PREDICT_PREDICTOR_H_
