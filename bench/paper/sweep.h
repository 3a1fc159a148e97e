#ifndef BENCH_PAPER_SWEEP_H_
#define BENCH_PAPER_SWEEP_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "bench/paper/compared_systems/system.h"
#include "bench/paper/figure.h"

namespace fineserve::bench {

using Values = std::vector<double>;  // by seed
using Line = std::vector<Values>;    // one system's, by x

// A panel with a curve of each system, and the values behind it.
struct Swept {
  Panel panel;
  std::vector<Line> of;  // by system
};

// Measures each system at each x of the panel.
Swept Sweep(Panel panel, const std::vector<System>& systems,
            absl::FunctionRef<Values(const System& system, double x)> measure);

// Return our greatest lead over theirs, as a ratio or a difference, over all x.
Interval MostRatio(const Line& ours, const Line& theirs);
Interval MostDifference(const Line& ours, const Line& theirs);
// Return the same at the x where our lead is smallest, or where ours is
// furthest behind.
Interval LeastRatio(const Line& ours, const Line& theirs);
Interval LeastDifference(const Line& ours, const Line& theirs);

// Returns the highest rate at which `holds` is true, between `low` and `high`,
// after `steps` bisections of their ratio. `holds` must be true up to some
// rate.
double HighestRate(double low, double high, int steps,
                   absl::FunctionRef<bool(double rate)> holds);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_SWEEP_H_
