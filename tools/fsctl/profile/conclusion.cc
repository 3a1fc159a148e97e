#include "tools/fsctl/profile/conclusion.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/scheduling/local/predict/profile_fit.h"
#include "tools/fsctl/profile/point_plan.h"

namespace fineserve::fsctl {
namespace {

using sched::ProfileFit;

constexpr uint32_t kUsualChunk = 2048;  // a fleet file's, too
constexpr uint32_t kLeastChunk = 256;
constexpr uint32_t kMostChunk = 1 << 16;
// Another chunk is accepted only if it leaves at most this fraction of the
// error. Heuristic: a chunk larger than all batches changes nothing, and noise
// may favour any.
constexpr double kClearlyBetter = 0.75;
// The affine form errs by 3.8 to 13.7 % on measured engines
// (profile_fit_test.cc).
constexpr double kWorstError = 0.15;
constexpr double kWorstSpread = 0.1;

std::vector<config::ProfilePoint> Medians(
    const std::vector<PointSamples>& points) {
  std::vector<config::ProfilePoint> medians;
  for (const PointSamples& p : points) {
    if (p.samples.empty()) continue;
    const auto ttfts = Column(p.samples, &Sample::ttft_s);
    const auto steps = Column(p.samples, &Sample::step_s);
    const double tokens = Median(Column(p.samples, &Sample::prompt_tokens));
    medians.push_back({p.point.batch,
                       static_cast<uint32_t>(std::lround(tokens)),
                       Median(ttfts), Median(steps), Spread(ttfts),
                       Spread(steps), static_cast<uint32_t>(ttfts.size())});
  }
  return medians;
}

std::vector<sched::ProfileRow> Rows(
    const std::vector<config::ProfilePoint>& points) {
  std::vector<sched::ProfileRow> rows;
  rows.reserve(points.size());
  for (const config::ProfilePoint& p : points) {
    rows.push_back({p.batch, p.prompt_tokens, p.ttft_s, p.step_s});
  }
  return rows;
}

struct Chunked {
  uint32_t tokens;
  ProfileFit fit;
};

absl::StatusOr<Chunked> FitChunk(const std::vector<sched::ProfileRow>& rows,
                                 uint32_t given) {
  const uint32_t usual = given == 0 ? kUsualChunk : given;
  const auto fit = sched::FitServedProfile(rows, usual);
  if (!fit.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "too little was measured (", rows.size(), " points): ",
        fit.status().message(), ", or give more time with --budget"));
  }
  Chunked best = {usual, *fit};
  if (given != 0) return best;
  const double to_beat = kClearlyBetter * fit->prefill_error;
  for (uint32_t tokens = kLeastChunk; tokens <= kMostChunk; tokens *= 2) {
    const auto other = sched::FitServedProfile(rows, tokens);
    if (!other.ok() || other->prefill_error >= to_beat) continue;
    if (best.tokens == usual || other->prefill_error < best.fit.prefill_error) {
      best = {tokens, *other};
    }
  }
  return best;
}

double OrZero(double error) { return std::isfinite(error) ? error : 0; }

std::vector<std::string> Warnings(const config::MeasuredProfile& p,
                                  const std::vector<PointSamples>& points) {
  std::vector<std::string> warnings;
  const double error =
      std::max(p.quality.prefill_error, p.quality.decode_error);
  if (error > kWorstError) {
    warnings.push_back(absl::StrFormat(
        "base + per_token + per_sequence errs by %.0f %% on this engine, more "
        "than 15 %%: predictions will be as far off; measure only lengths that "
        "you serve (--prompts), and give its --chunk-tokens",
        100 * error));
  }
  if (p.step.per_token_us <= 0) {
    warnings.push_back(
        "prompts of all lengths took as long, so per_token is 0 and the file "
        "could not be used; measure longer --prompts");
  }
  double spread = 0;
  for (const config::ProfilePoint& point : p.points) {
    spread = std::max({spread, point.ttft_spread, point.step_spread});
  }
  if (spread > kWorstSpread) {
    warnings.push_back(absl::StrFormat(
        "repetitions differ by up to %.0f %%: something else uses the engine, "
        "its GPU or this machine; measure again when it does not",
        100 * spread));
  }
  for (const PointSamples& point : points) {
    if (!point.dropped.empty()) {
      warnings.push_back(
          absl::StrCat("left out ", point.point.Title(), ": ", point.dropped));
    }
  }
  return warnings;
}

}  // namespace

absl::StatusOr<Conclusion> Conclude(const std::vector<PointSamples>& points,
                                    uint32_t chunk_tokens) {
  Conclusion c;
  config::MeasuredProfile& p = c.profile;
  p.points = Medians(points);
  const absl::StatusOr<Chunked> best = FitChunk(Rows(p.points), chunk_tokens);
  if (!best.ok()) return best.status();
  const ProfileFit& fit = best->fit;
  p.chunk_tokens = best->tokens;
  c.chunk_found = chunk_tokens == 0;
  p.step = {fit.profile.base_us, fit.profile.per_token_us,
            fit.profile.per_sequence_us};
  p.decode_base_us = fit.decode_base_us;
  const sched::StandardErrors& errors = fit.standard_errors;
  p.quality = {{OrZero(errors.base_us), OrZero(errors.per_token_us),
                OrZero(errors.per_sequence_us)},
               fit.prefill_error,
               fit.decode_error};
  c.warnings = Warnings(p, points);
  return c;
}

}  // namespace fineserve::fsctl
