#ifndef DAEMON_SCHEDULING_GLOBAL_SCORE_KV_PRESSURE_H_
#define DAEMON_SCHEDULING_GLOBAL_SCORE_KV_PRESSURE_H_

#include <cstdint>

#include "daemon/scheduling/global/model/assignment.h"

namespace fineserve::plan {

// Prism's KV pressure ratio: what is asked of a GPU's KV divided by what the
// GPU has.
enum class Pressure {
  kV1,  // Σ request rate / TTFT SLO (arXiv:2505.04021v1)
  kV3,  // Σ token rate · token size / TPOT SLO (v3, OSDI'26)
};

// Returns what one shard adds to the numerator.
double PressureOf(const Replica& replica, Pressure pressure);

// A GPU's numerator and denominator: what its residents ask for, and the bytes
// of its pool or, if it has no pool, the bytes that their weights leave.
struct GpuPressure {
  double asked = 0;
  double shared_bytes = 0;
  bool pool_made = false;

  // Returns the KVPR; infinite if residents ask for KV and none is left.
  double Ratio() const;
  GpuPressure With(const Replica& replica, Pressure pressure) const;
  GpuPressure Without(const Replica& replica, Pressure pressure) const;
};
GpuPressure PressureOn(const Assignment& a, uint32_t gpu, Pressure pressure);

// The highest KVPR of all GPUs.
double HighestPressure(const Assignment& a, Pressure pressure);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_SCORE_KV_PRESSURE_H_
