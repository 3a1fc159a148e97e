#include "daemon/scheduling/local/predict/predictor.h"

#include <algorithm>
#include <cmath>

namespace fineserve::sched {
namespace {

// The newest observation's weight. Heuristic, the best of 0.02 to 0.2 in
// simulation: with a memory of 20 first tokens, κ still follows a neighbour
// that comes and goes.
constexpr double kWeight = 0.05;
// Heuristic: beyond these bounds the profile is from another machine, and one
// stalled request should not make all others look late.
constexpr double kLeastKappa = 0.25;
constexpr double kMostKappa = 8;
constexpr double kMostKappaOfGuess = 8 * kMostKappa;
// The profile has the weight of this many observations that agree with it.
constexpr double kProfileCounts = 4;
constexpr double kGuessCounts = 1;

Micros Rounded(double us) {
  return us < static_cast<double>(kLongestTtft)
             ? static_cast<Micros>(std::ceil(us))
             : kLongestTtft;
}

}  // namespace

uint32_t Predictor::budget_tokens() const {
  return chunk_tokens > running ? chunk_tokens - running : 1;
}

Micros Predictor::operator()(uint64_t prompt_tokens) const {
  const uint64_t tokens = backlog_tokens + prompt_tokens;
  const uint64_t budget = budget_tokens();
  const uint64_t full = tokens / budget;
  const uint64_t rest = tokens % budget;
  const double n = running;
  const double under_way = running > 0 ? profile.DecodeUs(n) / 2 : 0;
  double fixed = static_cast<double>(full) *
                 profile.FixedUs(static_cast<double>(budget), n);
  if (rest > 0) fixed += profile.FixedUs(static_cast<double>(rest), n);
  const double filled =
      kappa *
      (under_way + fixed + profile.per_token_us * static_cast<double>(tokens));
  return Rounded(static_cast<double>(back_in) + filled);
}

Micros Predictor::FullStep() const {
  const double tokens = budget_tokens();
  return Rounded(kappa * (profile.FixedUs(tokens, running) +
                          profile.per_token_us * tokens));
}

uint32_t SloBatch(const Profile& profile, double kappa, Micros slo_tpot) {
  // Assumes the most reads from a peer that a batch can have, so that any
  // smaller batch also keeps the SLO.
  const double fixed =
      profile.base_us +
      profile.peer.AddedUs(profile.base_us, profile.peer.reread * kRowBlock);
  const double left = static_cast<double>(slo_tpot) / kappa - fixed;
  if (left <= profile.per_sequence_us) return 1;
  const double most = std::numeric_limits<uint32_t>::max();
  if (left >= profile.per_sequence_us * most) return UINT32_MAX;
  return static_cast<uint32_t>(left / profile.per_sequence_us);
}

Correction::Correction(const Sums& sums) : sums_(sums) {
  sums_.actual_us = std::clamp(sums.actual_us, kLeastKappa * sums.predicted_us,
                               kMostKappaOfGuess * sums.predicted_us);
}

void Correction::Observe(Micros actual, Micros predicted_uncorrected,
                         bool guessed) {
  if (predicted_uncorrected <= 0 || actual <= 0) return;
  const auto predicted = static_cast<double>(predicted_uncorrected);
  const double bounded =
      std::clamp(static_cast<double>(actual), kLeastKappa * predicted,
                 (guessed ? kMostKappaOfGuess : kMostKappa) * predicted);
  if (sums_.observed == 0) sums_.actual_us = sums_.predicted_us = predicted;
  ++sums_.observed;
  const double weight = std::max(
      kWeight,
      1 / (sums_.observed + (guessed ? kGuessCounts : kProfileCounts)));
  sums_.actual_us += weight * (bounded - sums_.actual_us);
  sums_.predicted_us += weight * (predicted - sums_.predicted_us);
}

}  // namespace fineserve::sched
