#include "daemon/scheduling/local/predict/profile_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fineserve::sched {
namespace {

constexpr double kMicrosPerSecond = 1e6;

// y ≈ known + coefficients[0] · x[0] + coefficients[1] · x[1], in µs.
struct Point {
  double x[2];
  double known;
  double y;
};

struct Fit {
  Eigen::Vector2d coefficients{0, 0};
  Eigen::Vector2d standard_errors{0, 0};
  double error = 0;  // mean of |fitted − y| / y
};

// Returns the least-squares fit of relative errors over the columns of `a` that
// `first` and `count` name; the other coefficient is 0.
Fit FitColumns(const Eigen::MatrixX2d& a, const Eigen::VectorXd& b, int first,
               int count) {
  const Eigen::MatrixXd used = a.middleCols(first, count);
  Fit fit;
  fit.coefficients.segment(first, count) = used.colPivHouseholderQr().solve(b);
  const Eigen::VectorXd left = a * fit.coefficients - b;
  fit.error = left.cwiseAbs().mean();
  const auto freedom = static_cast<double>(a.rows() - count);
  const double variance = freedom > 0
                              ? left.squaredNorm() / freedom
                              : std::numeric_limits<double>::quiet_NaN();
  const Eigen::MatrixXd covariance =
      variance * (used.transpose() * used).inverse();
  fit.standard_errors.segment(first, count) = covariance.diagonal().cwiseSqrt();
  return fit;
}

// Dividing each equation by its y makes the errors relative.
absl::StatusOr<Fit> FitPoints(const std::vector<Point>& points) {
  Eigen::MatrixX2d a(points.size(), 2);
  Eigen::VectorXd b(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    const auto row = static_cast<Eigen::Index>(i);
    a.row(row) << p.x[0] / p.y, p.x[1] / p.y;
    b(row) = (p.y - p.known) / p.y;
  }
  if (a.colPivHouseholderQr().rank() < 2) {
    return absl::InvalidArgumentError(
        "these rows do not separate the base of a step from what is added to "
        "it; "
        "measure more batches and prompts");
  }
  const Fit both = FitColumns(a, b, 0, 2);
  if (both.coefficients(0) < 0) return FitColumns(a, b, 1, 1);
  if (both.coefficients(1) < 0) return FitColumns(a, b, 0, 1);
  return both;
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

absl::StatusOr<ProfileFit> FitRows(
    const std::vector<ProfileRow>& rows,
    absl::FunctionRef<FilledSteps(const ProfileRow&)> steps_of) {
  if (const absl::Status bad = Check(rows); !bad.ok()) return bad;
  std::vector<Point> decode;
  for (const ProfileRow& r : rows) {
    decode.push_back({{1, static_cast<double>(r.batch)},
                      0,
                      r.decode_step_s * kMicrosPerSecond});
  }
  const absl::StatusOr<Fit> decodes = FitPoints(decode);
  if (!decodes.ok()) return decodes.status();
  const double per_sequence_us = decodes->coefficients(1);
  std::vector<Point> prefill;
  for (const ProfileRow& r : rows) {
    const FilledSteps filled = steps_of(r);
    const auto work = static_cast<double>(uint64_t{r.batch} * r.input_tokens);
    prefill.push_back({{static_cast<double>(filled.steps), work},
                       per_sequence_us * static_cast<double>(filled.decoded),
                       r.prefill_s * kMicrosPerSecond});
  }
  const absl::StatusOr<Fit> prefills = FitPoints(prefill);
  if (!prefills.ok()) return prefills.status();
  return ProfileFit{
      {prefills->coefficients(0), prefills->coefficients(1), per_sequence_us},
      decodes->coefficients(0),
      prefills->error,
      decodes->error,
      {prefills->standard_errors(0), prefills->standard_errors(1),
       decodes->standard_errors(1), decodes->standard_errors(0)}};
}

}  // namespace

FilledSteps BatchSteps(uint32_t batch, uint32_t input_tokens,
                       uint32_t chunk_tokens) {
  FilledSteps filled;
  const uint64_t prompt = std::max(input_tokens, 1u);
  const uint64_t all = batch * prompt;
  for (uint64_t done = 0; done < all; ++filled.steps) {
    const uint64_t running = done / prompt;
    const uint64_t room =
        chunk_tokens - std::min<uint64_t>(running, chunk_tokens);
    const uint64_t there = (filled.steps == 0 ? prompt : all) - done;
    filled.decoded += running;
    done += std::min(there, std::max<uint64_t>(room, 1));
  }
  return filled;
}

absl::StatusOr<ProfileFit> FitProfile(const std::vector<ProfileRow>& rows) {
  return FitRows(rows, [](const ProfileRow&) { return FilledSteps{1, 0}; });
}

absl::StatusOr<ProfileFit> FitServedProfile(const std::vector<ProfileRow>& rows,
                                            uint32_t chunk_tokens) {
  return FitRows(rows, [=](const ProfileRow& r) {
    return BatchSteps(r.batch, r.input_tokens, chunk_tokens);
  });
}

}  // namespace fineserve::sched
