#ifndef TOOLS_FSCTL_PROFILE_REPETITIONS_H_
#define TOOLS_FSCTL_PROFILE_REPETITIONS_H_

#include <vector>

namespace fineserve::fsctl {

// The middle value, or the mean of the two in the middle; 0 of none.
// Repetitions that something disturbed do not move it while they are fewer than
// half.
double Median(std::vector<double> values);

// The median distance from the median, in parts of the median; 0 of none.
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

#endif  // TOOLS_FSCTL_PROFILE_REPETITIONS_H_
