#ifndef TOOLS_FSCTL_PROFILE_POINT_PLAN_H_
#define TOOLS_FSCTL_PROFILE_POINT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"

namespace fineserve::fsctl {

// A point to be measured: a batch of prompts of one length, sent at once.
struct PlannedPoint {
  uint32_t batch = 0;
  uint32_t prompt_tokens = 0;  // of each
  uint32_t output_tokens = 0;  // of each
  bool operator==(const PlannedPoint&) const = default;

  std::string Title() const;  // "batch 8, 256 tokens"
};

// Result of one repetition of a point.
struct Sample {
  double ttft_s = 0;         // until the last of its first tokens
  double step_s = 0;         // mean, a token of each, while all generate
  double prompt_tokens = 0;  // of each, as the engine counts them
};

struct PointSamples {
  PlannedPoint point;
  std::vector<Sample> samples;
  std::string dropped;  // why it is no longer measured; empty: it is
};

// Returns InvalidArgument, with the fix, unless a step's time can be fitted to
// such points: at least two different batches, and no zeros.
absl::Status CheckPoints(const std::vector<uint32_t>& batches,
                         const std::vector<uint32_t>& prompts);

// Returns every combination of batch and prompt length once, the least work
// first. The answers are long enough that all sequences of a batch generate
// together for some steps, even if prompts are filled in small chunks.
std::vector<PlannedPoint> PlanPoints(const std::vector<uint32_t>& batches,
                                     const std::vector<uint32_t>& prompts);

// Returns InvalidArgument if a point is longer than the engine's model allows
// (0: not known).
absl::Status CheckLengths(const std::vector<PlannedPoint>& points,
                          uint32_t model_tokens);

// Repetitions of a point: the least number, and the most, if they differ
// widely.
inline constexpr size_t kLeastRepetitions = 3;
inline constexpr size_t kMostRepetitions = 7;
inline constexpr double kWideSpread = 0.05;

// Returns the point to measure next: the one with the fewest repetitions, until
// all have enough. This spreads the remaining time over all points.
absl::optional<size_t> NextPoint(const std::vector<PointSamples>& points);

// Returns the repetitions that NextPoint still asks for, if no spread changes.
size_t RepetitionsLeft(const std::vector<PointSamples>& points);

// Returns the middle value, or the mean of the two middle values; 0 if there
// are none. Disturbed repetitions do not move it while they are fewer than
// half.
double Median(std::vector<double> values);

// Returns the median distance from the median, as a fraction of the median; 0
// if there are no values.
double Spread(const std::vector<double>& values);

// One field of each.
template <typename T>
std::vector<double> Column(const std::vector<T>& rows, double T::*field) {
  std::vector<double> column;
  column.reserve(rows.size());
  for (const T& row : rows) column.push_back(row.*field);
  return column;
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_POINT_PLAN_H_
