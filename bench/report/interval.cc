#include "bench/report/interval.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_format.h"

namespace fineserve::bench {
namespace {

// Student's t, two-sided 95 %, by degrees of freedom from 1.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571,
                               2.447,  2.365, 2.306, 2.262, 2.228};
constexpr double kNormal = 1.96;

double Student(size_t degrees) {
  return degrees <= std::size(kStudent) ? kStudent[degrees - 1] : kNormal;
}

}  // namespace

Interval MeanOf(const std::vector<double>& values) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  if (values.empty()) return {0, kUnknown};
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double v : values) mean += v / n;
  if (values.size() == 1) return {mean, kUnknown};
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, Student(values.size() - 1) * std::sqrt(squares / (n - 1) / n)};
}

Interval RatioOf(const std::vector<double>& ours,
                 const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    if (theirs[i] != 0) ratios.push_back(ours[i] / theirs[i]);
  }
  return MeanOf(ratios);
}

Interval DifferenceOf(const std::vector<double>& ours,
                      const std::vector<double>& theirs) {
  std::vector<double> differences;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    differences.push_back(ours[i] - theirs[i]);
  }
  return MeanOf(differences);
}

std::string Text(const Interval& interval) {
  if (!std::isfinite(interval.half)) {
    return absl::StrFormat("%.4g", interval.mean);
  }
  return absl::StrFormat("%.4g ± %.2g", interval.mean, interval.half);
}

}  // namespace fineserve::bench
