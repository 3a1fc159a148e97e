#include "daemon/sched/predict/profile_fit.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fineserve::sched {
namespace {

constexpr double kMicrosPerSecond = 1e6;

// y ≈ base + slope · x.
struct Line {
  double base = 0;
  double slope = 0;
  double error = 0;  // mean of |fitted − y| / y
};

struct Point {
  double x;
  double y;
};

// The one coefficient by which `column` comes nearest to all ones.
double FitOne(const std::vector<double>& column) {
  double sum = 0, squares = 0;
  for (const double c : column) {
    sum += c;
    squares += c * c;
  }
  return sum / squares;
}

// Both coefficients. Squares of relative errors weigh a point by 1 / y².
Line FitBoth(const std::vector<Point>& points) {
  double weights = 0, mean_x = 0, mean_y = 0;
  for (const Point& p : points) {
    const double weight = 1 / (p.y * p.y);
    weights += weight;
    mean_x += weight * p.x;
    mean_y += weight * p.y;
  }
  mean_x /= weights;
  mean_y /= weights;
  double covariance = 0, variance = 0;
  for (const Point& p : points) {
    const double weight = 1 / (p.y * p.y);
    covariance += weight * (p.x - mean_x) * (p.y - mean_y);
    variance += weight * (p.x - mean_x) * (p.x - mean_x);
  }
  const double slope = covariance / variance;
  return {mean_y - slope * mean_x, slope, 0};
}

Line FitLine(const std::vector<Point>& points) {
  std::vector<double> bases, slopes;
  for (const Point& p : points) {
    bases.push_back(1 / p.y);
    slopes.push_back(p.x / p.y);
  }
  Line line = FitBoth(points);
  if (line.base < 0) line = {0, FitOne(slopes), 0};
  if (line.slope < 0) line = {FitOne(bases), 0, 0};
  for (const Point& p : points) {
    line.error += std::abs((line.base + line.slope * p.x) / p.y - 1);
  }
  line.error /= static_cast<double>(points.size());
  return line;
}

absl::Status Check(const std::vector<ProfileRow>& rows) {
  bool two_prefills = false, two_batches = false;
  for (const ProfileRow& r : rows) {
    if (!(r.prefill_s > 0) || !(r.decode_step_s > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("profile row batch ", r.batch, ", ", r.input_tokens,
                       " tokens: times must be positive"));
    }
    two_batches |= r.batch != rows[0].batch;
    two_prefills |= uint64_t{r.batch} * r.input_tokens !=
                    uint64_t{rows[0].batch} * rows[0].input_tokens;
  }
  if (two_prefills && two_batches) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a profile needs two different batches and amounts of prefill work");
}

}  // namespace

absl::StatusOr<ProfileFit> FitProfile(const std::vector<ProfileRow>& rows) {
  if (const absl::Status bad = Check(rows); !bad.ok()) return bad;
  std::vector<Point> prefill, decode;
  for (const ProfileRow& r : rows) {
    const auto work = static_cast<double>(uint64_t{r.batch} * r.input_tokens);
    prefill.push_back({work, r.prefill_s * kMicrosPerSecond});
    decode.push_back(
        {static_cast<double>(r.batch), r.decode_step_s * kMicrosPerSecond});
  }
  const Line prefills = FitLine(prefill);
  const Line decodes = FitLine(decode);
  return ProfileFit{{prefills.base, prefills.slope, decodes.slope},
                    decodes.base,
                    prefills.error,
                    decodes.error};
}

}  // namespace fineserve::sched
