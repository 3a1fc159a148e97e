#include "daemon/scheduling/global/policy/prism_opt_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/optional.h"
#include "daemon/scheduling/global/model/groups.h"
#include "daemon/scheduling/global/policy/greedy.h"
#include "daemon/scheduling/global/policy/prism_policy.h"

namespace fineserve::plan {
namespace {

constexpr About kPrismOptAbout = {"prism-opt", Tier::kOurs,
                                  "least highest KVPR: binary search, best fit "
                                  "decreasing, moves and swaps"};
constexpr int kSearchSteps = 40;
// A step must lower the highest KVPR by this fraction, so that rounding cannot
// make the search go round in circles.
constexpr double kLeastGain = 1e-9;

// An item's size on a GPU at T.
double Size(const Replica& r, Pressure pressure, double t) {
  return r.weight_bytes + PressureOf(r, pressure) / t;
}

// Packs all `replicas` at T by best fit decreasing. Returns nothing if a
// replica finds no room.
absl::optional<Assignment> Pack(const Problem& p, Pressure pressure, double t,
                                const std::vector<bool>& wanted) {
  Assignment a(p);
  std::vector<double> left;
  for (const Gpu& g : p.gpus) left.push_back(g.Capacity());
  for (const uint32_t r :
       Descending(p, [&](const Replica& x) { return Size(x, pressure, t); })) {
    if (!wanted[r]) continue;
    const double size = Size(p.replicas[r], pressure, t);
    Group best;
    double best_left = 0;
    ForEachGroup(a, r, Charge::kLeast, [&](const Group& group) {
      double sum = 0, least = left[group[0]];
      for (const uint32_t g : group) {
        sum += left[g];
        least = std::min(least, left[g]);
      }
      if (least < size || (!best.empty() && sum >= best_left)) return;
      best = group;
      best_left = sum;
    });
    if (best.empty()) return absl::nullopt;
    for (const uint32_t g : best) left[g] -= size;
    a.Put(r, best);
  }
  return a;
}

double RatioWithout(const Assignment& a, uint32_t gpu, uint32_t out,
                    Pressure pressure) {
  return PressureOn(a, gpu, pressure)
      .Without(a.problem().replicas[out], pressure)
      .Ratio();
}

bool Put(const Group& group, uint32_t r, Assignment* a) {
  if (!a->Takes(group, r, Charge::kLeast)) return false;
  a->Put(r, group);
  return true;
}

double HighestOf(const Assignment& a, const Group& x, const Group& y,
                 Pressure pressure) {
  double highest = 0;
  for (const Group* group : {&x, &y}) {
    for (const uint32_t g : *group) {
      highest = std::max(highest, PressureOn(a, g, pressure).Ratio());
    }
  }
  return highest;
}

// Moves `r` to the group with which the highest KVPR is lowest, if that is
// below `limit`.
bool MoveBelow(uint32_t r, double limit, Pressure pressure, Assignment* a) {
  const Group from = a->GroupOf(r);
  a->Remove(r);
  Group best = from;
  double best_ratio = limit;
  ForEachGroup(*a, r, Charge::kLeast, [&](const Group& group) {
    double ratio = 0;
    for (const uint32_t g : group) {
      ratio = std::max(ratio, PressureOn(*a, g, pressure)
                                  .With(a->problem().replicas[r], pressure)
                                  .Ratio());
    }
    if (ratio >= best_ratio) return;
    best = group;
    best_ratio = ratio;
  });
  a->Put(r, best);
  return best != from;
}

// Swaps two replicas of the same TP if all their GPUs are then below `limit`.
bool SwapBelow(uint32_t r, uint32_t other, double limit, Pressure pressure,
               Assignment* a) {
  const Group here = a->GroupOf(r), there = a->GroupOf(other);
  if (here.size() != there.size() || here == there) return false;
  a->Remove(r);
  a->Remove(other);
  bool put = Put(there, r, a);
  if (put && !Put(here, other, a)) {
    a->Remove(r);
    put = false;
  }
  if (put && HighestOf(*a, here, there, pressure) < limit) return true;
  if (put) {
    a->Remove(r);
    a->Remove(other);
  }
  a->Put(r, here);
  a->Put(other, there);
  return false;
}

bool Relieve(uint32_t gpu, Pressure pressure, Assignment* a) {
  const double limit = PressureOn(*a, gpu, pressure).Ratio() * (1 - kLeastGain);
  const Assignment::Residents residents = a->On(gpu);
  for (const uint32_t r : residents) {
    if (RatioWithout(*a, gpu, r, pressure) >= limit) continue;
    if (MoveBelow(r, limit, pressure, a)) return true;
  }
  for (const uint32_t r : residents) {
    for (uint32_t other = 0; other < a->problem().replicas.size(); ++other) {
      if (other != r && a->Hosted(other) &&
          SwapBelow(r, other, limit, pressure, a)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void LowerPressure(Pressure pressure, Assignment* a) {
  for (bool better = true; better;) {
    uint32_t worst = 0;
    double highest = 0;
    for (uint32_t g = 0; g < a->problem().gpus.size(); ++g) {
      const double ratio = PressureOn(*a, g, pressure).Ratio();
      if (ratio > highest) {
        highest = ratio;
        worst = g;
      }
    }
    better = highest > 0 && Relieve(worst, pressure, a);
  }
}

const About& PrismOptPolicy::about() const { return kPrismOptAbout; }

Assignment PrismOptPolicy::Place(const Problem& problem,
                                 Journal* journal) const {
  // Starts from the greedy variant of this policy, which finds the models that
  // can be hosted, and a first placement.
  Assignment best = PrismPolicy(PrismPolicy::Form::kMended, pressure_, 0)
                        .Place(problem, journal);
  std::vector<bool> wanted;
  for (uint32_t r = 0; r < problem.replicas.size(); ++r) {
    wanted.push_back(best.Hosted(r));
  }
  double high = HighestPressure(best, pressure_), low = 0;
  for (int i = 0; i < kSearchSteps && high > 0; ++i) {
    const double t = std::isfinite(high) ? (low + high) / 2 : low * 2 + 1;
    auto packed = Pack(problem, pressure_, t, wanted);
    (packed.has_value() ? high : low) = t;
    if (packed.has_value() && HighestPressure(*packed, pressure_) <
                                  HighestPressure(best, pressure_)) {
      best = *std::move(packed);
    }
  }
  LowerPressure(pressure_, &best);
  return best;
}

}  // namespace fineserve::plan
