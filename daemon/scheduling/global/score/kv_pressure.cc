#include "daemon/scheduling/global/score/kv_pressure.h"

#include <algorithm>
#include <limits>

namespace fineserve::plan {

double PressureOf(const Replica& replica, Pressure pressure) {
  return pressure == Pressure::kV1 ? replica.pressure_v1 : replica.pressure_v3;
}

double GpuPressure::Ratio() const {
  if (asked <= 0) return 0;
  if (shared_bytes <= 0) return std::numeric_limits<double>::infinity();
  return asked / shared_bytes;
}

GpuPressure GpuPressure::With(const Replica& r, Pressure pressure) const {
  return {asked + PressureOf(r, pressure),
          pool_made ? shared_bytes : shared_bytes - r.weight_bytes, pool_made};
}

GpuPressure GpuPressure::Without(const Replica& r, Pressure pressure) const {
  return {asked - PressureOf(r, pressure),
          pool_made ? shared_bytes : shared_bytes + r.weight_bytes, pool_made};
}

GpuPressure PressureOn(const Assignment& a, uint32_t gpu, Pressure pressure) {
  const Gpu& g = a.problem().gpus[gpu];
  GpuPressure on{0, g.KvBytes(0), g.pool_bytes > 0};
  for (const uint32_t r : a.On(gpu)) {
    on = on.With(a.problem().replicas[r], pressure);
  }
  return on;
}

double HighestPressure(const Assignment& a, Pressure pressure) {
  double highest = 0;
  for (uint32_t g = 0; g < a.problem().gpus.size(); ++g) {
    highest = std::max(highest, PressureOn(a, g, pressure).Ratio());
  }
  return highest;
}

}  // namespace fineserve::plan
