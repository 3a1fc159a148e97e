#include "daemon/scheduling/global/score/efficiency.h"

#include <algorithm>
#include <cmath>

namespace fineserve::plan {

double EfficiencyOf(const Replica& replica, Efficiency efficiency) {
  if (efficiency == Efficiency::kStructural) return replica.structural_mu;
  const double batch = replica.base_kv_bytes / replica.curve.sequence_bytes;
  return replica.curve.Slope(batch, 1);
}

void MeasuredEfficiency::Observe(double kv_bytes, double tokens_per_s,
                                 bool binds) {
  if (!std::isfinite(kv_bytes) || !std::isfinite(tokens_per_s)) return;
  if (!binds) {
    last_.reset();
    return;
  }
  if (last_.has_value() && last_->kv_bytes != kv_bytes) {
    const double bytes = kv_bytes - last_->kv_bytes;
    products_ =
        memory_ * products_ + bytes * (tokens_per_s - last_->tokens_per_s);
    squares_ = memory_ * squares_ + bytes * bytes;
    ++changes_;
  }
  last_ = Seen{kv_bytes, tokens_per_s};
}

absl::optional<double> MeasuredEfficiency::Slope(uint32_t least_changes) const {
  if (changes_ < std::max(least_changes, 1u)) return absl::nullopt;
  return std::max(products_ / squares_, 0.0);
}

}  // namespace fineserve::plan
