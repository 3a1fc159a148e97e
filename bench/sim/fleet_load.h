#ifndef BENCH_SIM_FLEET_LOAD_H_
#define BENCH_SIM_FLEET_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/workload/rates.h"
#include "bench/workload/trace.h"
#include "tools/sim/fleet/world.h"

namespace fineserve::bench {

// A large fleet and its load, made and not measured.
struct FleetSize {
  uint32_t gpus = 0;
  uint32_t models = 0;
  double seconds = 0;
  double rate_per_gpu = 1;  // requests per second, on average
};

// Models of 8B in FP16 and FP8 by turns, the mean rate of model i in proportion
// to 1 / (i + 1), as many replicas as its rate needs, each on the GPU that has
// the least rate then.
sim::World MakeFleet(const FleetSize& size);

// Poisson arrivals whose rates follow ServeGen's, each model from a time of its
// own on.
workload::Trace MakeLoad(const FleetSize& size,
                         const workload::RateShapes& shapes,
                         const std::vector<workload::Lengths>& lengths,
                         uint64_t seed);

}  // namespace fineserve::bench

#endif  // BENCH_SIM_FLEET_LOAD_H_
