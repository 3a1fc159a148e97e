#include "tools/fsctl/profile/repetitions.h"

#include <algorithm>
#include <cmath>

namespace fineserve::fsctl {

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
