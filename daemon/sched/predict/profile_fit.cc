#include "daemon/sched/predict/profile_fit.h"

#include <Eigen/Dense>
#include <algorithm>
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

// One coefficient alone: the multiple of column that is nearest to all ones.
double FitOne(const Eigen::VectorXd& column) {
  return column.sum() / column.squaredNorm();
}

// Each row is divided by its y, so that relative errors are squared.
Line FitLine(const Eigen::VectorXd& x, const Eigen::VectorXd& y) {
  Eigen::MatrixXd rows(x.size(), 2);
  rows.col(0) = y.cwiseInverse();
  rows.col(1) = x.cwiseQuotient(y);
  const Eigen::VectorXd found =
      rows.colPivHouseholderQr().solve(Eigen::VectorXd::Ones(x.size()));
  Line line{found(0), found(1), 0};
  if (line.base < 0) line = {0, FitOne(rows.col(1)), 0};
  if (line.slope < 0) line = {FitOne(rows.col(0)), 0, 0};
  const Eigen::VectorXd fitted = rows * Eigen::Vector2d(line.base, line.slope);
  line.error = (fitted.array() - 1).abs().mean();
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
  const auto count = static_cast<Eigen::Index>(rows.size());
  Eigen::VectorXd work(count), prefill(count), batch(count), decode(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const ProfileRow& r = rows[static_cast<size_t>(i)];
    work(i) = static_cast<double>(uint64_t{r.batch} * r.input_tokens);
    prefill(i) = r.prefill_s * kMicrosPerSecond;
    batch(i) = r.batch;
    decode(i) = r.decode_step_s * kMicrosPerSecond;
  }
  const Line prefills = FitLine(work, prefill);
  const Line decodes = FitLine(batch, decode);
  return ProfileFit{{prefills.base, prefills.slope, decodes.slope},
                    decodes.base,
                    prefills.error,
                    decodes.error};
}

}  // namespace fineserve::sched
