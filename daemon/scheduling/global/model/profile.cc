#include "daemon/scheduling/global/model/profile.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "daemon/scheduling/local/predict/profile_fit.h"

namespace fineserve::plan {
namespace {

constexpr double kMicrosPerSecond = 1e6;
// Least cd, as a fraction of c0. If a larger batch cost nothing, the best batch
// would be infinite.
constexpr double kLeastSlope = 1e-6;

absl::Status BadProfile(const Profile& profile, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "profile of ", profile.Title(), ": ", what, "; measure it again"));
}

// The two points of one batch through which a line over the prompt length is
// drawn; both are the same if there is only one.
struct Pair {
  const OperatingPoint* low = nullptr;
  const OperatingPoint* high = nullptr;
};
Pair Nearest(const Profile& profile, uint32_t batch, double prompt_tokens) {
  const auto distance = [&](const OperatingPoint* p) {
    return std::abs(p->prompt_tokens - prompt_tokens);
  };
  Pair nearest;  // low: the nearest, high: the next
  for (const OperatingPoint& p : profile.points) {
    if (p.batch != batch) continue;
    if (nearest.low == nullptr || distance(&p) < distance(nearest.low)) {
      nearest.high = nearest.low;
      nearest.low = &p;
    } else if (nearest.high == nullptr ||
               distance(&p) < distance(nearest.high)) {
      nearest.high = &p;
    }
  }
  if (nearest.high == nullptr) nearest.high = nearest.low;
  return nearest;
}

std::vector<sched::ProfileRow> Rows(const Profile& profile) {
  std::vector<sched::ProfileRow> rows;
  for (const OperatingPoint& p : profile.points) {
    rows.push_back({p.batch, p.prompt_tokens, p.ttft_s, p.tpot_s});
  }
  return rows;
}

}  // namespace

std::string Profile::Title() const {
  return absl::StrCat(architecture, " ", quantisation, ", TP ", tp);
}

absl::Status CheckProfile(const Profile& profile) {
  if (profile.tp == 0) return BadProfile(profile, "TP is 0");
  if (!Positive(profile.weight_bytes)) return BadProfile(profile, "no weights");
  if (!Positive(profile.kv_token_bytes)) {
    return BadProfile(profile, "no KV per token");
  }
  if (!std::isfinite(profile.activation_bytes) ||
      profile.activation_bytes < 0) {
    return BadProfile(profile, "activations are not a size");
  }
  for (const OperatingPoint& p : profile.points) {
    if (p.batch == 0 || p.prompt_tokens == 0 || !Positive(p.ttft_s) ||
        !Positive(p.tpot_s)) {
      return BadProfile(profile,
                        absl::StrCat("batch ", p.batch, ", ", p.prompt_tokens,
                                     " tokens: not a positive time"));
    }
  }
  if (const auto fit = sched::FitProfile(Rows(profile)); !fit.ok()) {
    return BadProfile(profile, std::string(fit.status().message()));
  }
  return absl::OkStatus();
}

std::vector<uint32_t> Batches(const Profile& profile) {
  std::vector<uint32_t> batches;
  for (const OperatingPoint& p : profile.points) batches.push_back(p.batch);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

double Ttft(const Profile& profile, uint32_t batch, double prompt_tokens) {
  const Pair p = Nearest(profile, batch, prompt_tokens);
  if (p.low->prompt_tokens == p.high->prompt_tokens) {
    return p.low->ttft_s * prompt_tokens / p.low->prompt_tokens;
  }
  const double slope =
      (p.high->ttft_s - p.low->ttft_s) /
      (double{1} * p.high->prompt_tokens - p.low->prompt_tokens);
  // A longer prompt never takes less time, whatever was measured.
  return std::max(
      p.low->ttft_s +
          std::max(slope, 0.0) * (prompt_tokens - p.low->prompt_tokens),
      p.low->ttft_s * std::min(1.0, prompt_tokens / p.low->prompt_tokens));
}

double Tpot(const Profile& profile, uint32_t batch, double prompt_tokens) {
  return Nearest(profile, batch, prompt_tokens).low->tpot_s;
}

double RequestRate(const Profile& profile, uint32_t batch, double prompt_tokens,
                   double output_tokens) {
  return batch / (Ttft(profile, batch, prompt_tokens) +
                  output_tokens * Tpot(profile, batch, prompt_tokens));
}

absl::StatusOr<TokenTime> FitTokenTime(const Profile& profile,
                                       double prompt_tokens,
                                       double output_tokens) {
  const auto fit = sched::FitProfile(Rows(profile));
  if (!fit.ok()) return fit.status();
  const sched::Profile& step = fit->profile;
  TokenTime time;
  time.c0 =
      (fit->decode_base_us + step.base_us / output_tokens) / kMicrosPerSecond;
  time.cd = (step.per_sequence_us +
             step.per_token_us * prompt_tokens / output_tokens) /
            kMicrosPerSecond;
  time.c0 = std::max(time.c0, 1 / kMicrosPerSecond);
  time.cd = std::max(time.cd, kLeastSlope * time.c0);
  return time;
}

}  // namespace fineserve::plan
