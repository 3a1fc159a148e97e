#include "daemon/scheduling/evict/idle_times.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace fineserve::evict {
namespace {

using sched::Micros;

constexpr double kUnitUs = 1000;  // of bucket 0
// Each new time lowers the weight of the earlier ones by this factor.
constexpr double kKeep = 0.98;
// Weights of the other models' times, and of the assumption that is made
// without any times, counted in times of the model's own. Heuristics.
constexpr double kOthers = 3;
constexpr double kUnknown = 1;
constexpr double kUnknownUs = 1e6;  // half of such times are longer
// For how long the memory of an engine that leaves may be useful to others.
constexpr Micros kHorizons[] = {3'000'000, 10'000'000, 30'000'000, 100'000'000};

double PlaceOf(Micros idle) {
  return std::log2(std::max(1.0, static_cast<double>(idle) / kUnitUs));
}

}  // namespace

void IdleTimes::Ended(Micros idle) {
  for (double& weight : weights_) weight *= kKeep;
  const int bucket = std::min(kBuckets - 1, static_cast<int>(PlaceOf(idle)));
  weights_[static_cast<size_t>(bucket)] += 1;
  weight_ = weight_ * kKeep + 1;
}

double IdleTimes::Longer(Micros idle) const {
  const double place = std::min<double>(kBuckets, PlaceOf(idle));
  const auto bucket = static_cast<size_t>(place);
  double longer = 0;
  for (size_t b = bucket + 1; b < kBuckets; ++b) longer += weights_[b];
  if (bucket < kBuckets) {
    longer += weights_[bucket] * (1 - (place - static_cast<double>(bucket)));
  }
  return longer;
}

double IdleTimes::ChanceWithin(Micros horizon, Micros idle,
                               const IdleTimes& others) const {
  const auto longer = [&](Micros time) {
    const double unknown =
        kUnknown * kUnknownUs / (kUnknownUs + static_cast<double>(time));
    const double of_others =
        others.weight_ == 0
            ? 0
            : kOthers * others.Longer(time) / std::max(1.0, others.weight_);
    return Longer(time) + of_others + unknown;
  };
  return 1 - longer(idle + horizon) / longer(idle);
}

double IdleTimes::ChanceSoon(Micros idle, const IdleTimes& others) const {
  double sum = 0;
  for (const Micros horizon : kHorizons) {
    sum += ChanceWithin(horizon, idle, others);
  }
  return sum / std::size(kHorizons);
}

}  // namespace fineserve::evict
