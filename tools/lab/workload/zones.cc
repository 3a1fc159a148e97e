#include "tools/lab/workload/zones.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fineserve::workload {
namespace {

constexpr size_t kSlotsOfHour = 6;
constexpr size_t kSlotsOfDay = 24 * kSlotsOfHour;

double At(const Zones& zones, size_t model, size_t slot) {
  const size_t offset = model * kSlotsOfDay / zones.models.size();
  return zones.shape[(slot + offset) % zones.shape.size()];
}

// Returns the highest mean rate over an hour, or over the whole run if it is
// shorter.
double BusiestHour(const Zones& zones, size_t slots) {
  const size_t hour = std::min(slots, kSlotsOfHour);
  double busiest = 0;
  for (size_t model = 0; model < zones.models.size(); ++model) {
    for (size_t from = 0; from + hour <= slots; ++from) {
      double sum = 0;
      for (size_t i = 0; i < hour; ++i) sum += At(zones, model, from + i);
      busiest = std::max(busiest, sum / static_cast<double>(hour));
    }
  }
  return busiest;
}

}  // namespace

Slots RatesOf(const Zones& zones) {
  Slots slots;
  slots.seconds = kShapeSlotSeconds / zones.speed;
  const auto count =
      static_cast<size_t>(std::ceil(zones.seconds / slots.seconds));
  const double busiest = BusiestHour(zones, count);
  const double scale = busiest > 0 ? zones.busiest_rate / busiest : 0;
  for (size_t slot = 0; slot < count; ++slot) {
    std::vector<Stream> streams;
    for (size_t model = 0; model < zones.models.size(); ++model) {
      streams.push_back({zones.models[model], scale * At(zones, model, slot)});
    }
    slots.streams.push_back(std::move(streams));
  }
  return slots;
}

std::vector<double> MeanRates(const Slots& slots, double seconds) {
  std::vector<double> means;
  for (size_t slot = 0; slot < slots.streams.size(); ++slot) {
    const auto& streams = slots.streams[slot];
    means.resize(streams.size());
    const double from = static_cast<double>(slot) * slots.seconds;
    const double held = std::clamp(seconds - from, 0.0, slots.seconds);
    for (size_t model = 0; model < streams.size(); ++model) {
      means[model] += streams[model].per_second * held / seconds;
    }
  }
  return means;
}

double RateFor(const KvNeed& need, double part) {
  const uint32_t tokens = need.lengths.input + need.lengths.output;
  const uint32_t blocks = (tokens + need.block_tokens - 1) / need.block_tokens;
  const double at_once = part * need.pool_bytes / (blocks * need.block_bytes);
  return at_once / (need.lengths.output * need.token_seconds);
}

}  // namespace fineserve::workload
