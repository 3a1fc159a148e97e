#ifndef DAEMON_SCHEDULING_GLOBAL_SCORE_EFFICIENCY_H_
#define DAEMON_SCHEDULING_GLOBAL_SCORE_EFFICIENCY_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "daemon/scheduling/global/model/problem.h"

namespace fineserve::plan {

// A definition of the marginal memory efficiency μ (the paper's §3.1: Δ
// generated tokens per Δ KV memory).
enum class Efficiency {
  // Tokens that a byte of one GPU's KV holds: the slope of Fig. 3. The released
  // code's tp / (layers · block bytes) counts blocks of 16 tokens instead, a
  // factor that all models share.
  kStructural,
  // dX/dK at the KV of F_M: tokens/s per byte, so that a model whose engine is
  // near its speed limit counts less. Ours.
  kAnalytic,
};
double EfficiencyOf(const Replica& replica, Efficiency efficiency);

// μ as measured on an engine: the slope of tokens/s over KV bytes, by least
// squares over changes between observations while the pool binds (only then do
// more bytes mean more tokens). Old changes fade with each new one. Ours.
// Confined to a thread.
class MeasuredEfficiency {
 public:
  // `memory` is the fraction of the earlier knowledge that survives a change,
  // in [0, 1).
  explicit MeasuredEfficiency(double memory = 0.95) : memory_(memory) {}

  // Records the tokens/s that the engine made with `kv_bytes` since the last
  // observation. `binds`: whether a request waited for KV all that time.
  // Ignores values that are not finite.
  void Observe(double kv_bytes, double tokens_per_s, bool binds);

  // Returns tokens/s per byte, never negative; nothing until `least_changes`
  // changes of KV have been seen.
  absl::optional<double> Slope(uint32_t least_changes = 8) const;

 private:
  double memory_;
  double products_ = 0, squares_ = 0;  // Σ ΔK·ΔX, Σ ΔK²
  uint32_t changes_ = 0;
  struct Seen {
    double kv_bytes, tokens_per_s;
  };
  absl::optional<Seen> last_;  // none: the pool did not bind
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_SCORE_EFFICIENCY_H_
