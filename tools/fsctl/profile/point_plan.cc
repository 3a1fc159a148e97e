#include "tools/fsctl/profile/point_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {
namespace {

// Steps that all sequences of a batch generate together.
constexpr uint32_t kCommonSteps = 24;
// The smallest chunk with which engines are run.
constexpr uint64_t kLeastEngineChunk = 512;

bool IsWide(const std::vector<double>& values) {
  return Spread(values) > kWideSpread;
}

size_t Wanted(const PointSamples& p) {
  if (!p.dropped.empty()) return 0;
  if (p.samples.size() < kLeastRepetitions) return kLeastRepetitions;
  const bool wide = IsWide(Column(p.samples, &Sample::ttft_s)) ||
                    IsWide(Column(p.samples, &Sample::step_s));
  return wide ? kMostRepetitions : p.samples.size();
}

}  // namespace

std::string PlannedPoint::Title() const {
  return absl::StrCat("batch ", batch, ", ", prompt_tokens, " tokens");
}

absl::Status CheckPoints(const std::vector<uint32_t>& batches,
                         const std::vector<uint32_t>& prompts) {
  const auto is_zero = [](uint32_t n) { return n == 0; };
  if (std::any_of(batches.begin(), batches.end(), is_zero) ||
      std::any_of(prompts.begin(), prompts.end(), is_zero) || prompts.empty()) {
    return absl::InvalidArgumentError(
        "--batches and --prompts need numbers above 0, like --prompts 64,256");
  }
  if (std::set<uint32_t>(batches.begin(), batches.end()).size() < 2) {
    return absl::InvalidArgumentError(
        "one batch does not show what a sequence adds to a step; give "
        "--batches two at least, like 1,8");
  }
  return absl::OkStatus();
}

std::vector<PlannedPoint> PlanPoints(const std::vector<uint32_t>& batches,
                                     const std::vector<uint32_t>& prompts) {
  std::vector<PlannedPoint> points;
  for (const uint32_t batch :
       std::set<uint32_t>(batches.begin(), batches.end())) {
    for (const uint32_t prompt :
         std::set<uint32_t>(prompts.begin(), prompts.end())) {
      const uint64_t chunks = uint64_t{batch} * prompt / kLeastEngineChunk + 1;
      points.push_back(
          {batch, prompt, kCommonSteps + static_cast<uint32_t>(chunks)});
    }
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const PlannedPoint& a, const PlannedPoint& b) {
                     return uint64_t{a.batch} * a.prompt_tokens <
                            uint64_t{b.batch} * b.prompt_tokens;
                   });
  return points;
}

absl::Status CheckLengths(const std::vector<PlannedPoint>& points,
                          uint32_t model_tokens) {
  for (const PlannedPoint& p : points) {
    const uint64_t tokens = uint64_t{p.prompt_tokens} + p.output_tokens;
    if (model_tokens == 0 || tokens <= model_tokens) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        p.Title(), ": with ", p.output_tokens,
        " tokens of answer it is longer than the model's ", model_tokens,
        "; give shorter --prompts or smaller --batches"));
  }
  return absl::OkStatus();
}

absl::optional<size_t> NextPoint(const std::vector<PointSamples>& points) {
  absl::optional<size_t> next;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t has = points[i].samples.size();
    if (has >= Wanted(points[i])) continue;
    if (!next || has < points[*next].samples.size()) next = i;
  }
  return next;
}

size_t RepetitionsLeft(const std::vector<PointSamples>& points) {
  size_t left = 0;
  for (const PointSamples& p : points) {
    left += Wanted(p) - std::min(Wanted(p), p.samples.size());
  }
  return left;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

double Spread(const std::vector<double>& values) {
  const double median = Median(values);
  if (median == 0) return 0;
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double v : values) distances.push_back(std::abs(v - median));
  return Median(distances) / std::abs(median);
}

}  // namespace fineserve::fsctl
