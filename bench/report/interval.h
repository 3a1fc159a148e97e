#ifndef BENCH_REPORT_INTERVAL_H_
#define BENCH_REPORT_INTERVAL_H_

#include <string>
#include <vector>

namespace fineserve::bench {

// A mean over seeds, and half the width of its 95 % confidence interval
// (Student's t), which is infinite for a single value.
struct Interval {
  double mean = 0;
  double half = 0;

  double low() const { return mean - half; }
  double high() const { return mean + half; }
};

// Returns the mean of the values; 0 ± infinity if there are none.
Interval MeanOf(const std::vector<double>& values);

// Returns ours / theirs, seed by seed. Since both saw the same requests, the
// interval does not include the variation of the load. Leaves out seeds at
// which theirs is 0.
Interval RatioOf(const std::vector<double>& ours,
                 const std::vector<double>& theirs);
// ours − theirs, seed by seed.
Interval DifferenceOf(const std::vector<double>& ours,
                      const std::vector<double>& theirs);

// "1.52 ± 0.04".
std::string Text(const Interval& interval);

}  // namespace fineserve::bench

#endif  // BENCH_REPORT_INTERVAL_H_
