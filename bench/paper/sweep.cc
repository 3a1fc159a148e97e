#include "bench/paper/sweep.h"

#include <cmath>
#include <utility>

namespace fineserve::bench {
namespace {

Interval Most(const Line& ours, const Line& theirs, Interval least,
              Interval (*compare)(const Values&, const Values&)) {
  Interval most = least;
  for (size_t i = 0; i < ours.size(); ++i) {
    const Interval at = compare(ours[i], theirs[i]);
    if (at.mean > most.mean) most = at;
  }
  return most;
}

}  // namespace

Swept Sweep(Panel panel, const std::vector<System>& systems,
            absl::FunctionRef<Values(const System&, double)> measure) {
  Swept swept{std::move(panel), {}};
  for (const System& system : systems) {
    Curve curve{system.name, {}};
    Line& line = swept.of.emplace_back();
    for (const double x : swept.panel.x) {
      line.push_back(measure(system, x));
      curve.y.push_back(MeanOf(line.back()));
    }
    swept.panel.curves.push_back(std::move(curve));
  }
  return swept;
}

Interval MostRatio(const Line& ours, const Line& theirs) {
  return Most(ours, theirs, {}, RatioOf);
}

Interval MostDifference(const Line& ours, const Line& theirs) {
  return Most(ours, theirs, {-100, 0}, DifferenceOf);  // of percentages
}

Interval LeastRatio(const Line& ours, const Line& theirs) {
  Interval least = RatioOf(ours[0], theirs[0]);
  for (size_t i = 1; i < ours.size(); ++i) {
    const Interval at = RatioOf(ours[i], theirs[i]);
    if (at.mean < least.mean) least = at;
  }
  return least;
}

Interval LeastDifference(const Line& ours, const Line& theirs) {
  const Interval lead = MostDifference(theirs, ours);
  return {-lead.mean, lead.half};
}

double HighestRate(double low, double high, int steps,
                   absl::FunctionRef<bool(double)> holds) {
  for (; steps > 0; --steps) {
    const double rate = std::sqrt(low * high);
    (holds(rate) ? low : high) = rate;
  }
  return low;
}

}  // namespace fineserve::bench
