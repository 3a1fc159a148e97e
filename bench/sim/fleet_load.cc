#include "bench/sim/fleet_load.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/workload/arrivals.h"
#include "daemon/config/fleet.h"
#include "tools/sim/fleet/site.h"

namespace fineserve::bench {
namespace {

// Rate of one engine, some way below what it can serve.
constexpr double kReplicaRate = 6;

std::string NameOf(uint32_t model) { return absl::StrCat("m", model); }

std::vector<double> MeanRates(const FleetSize& size) {
  std::vector<double> rates(size.models);
  double sum = 0;
  for (uint32_t m = 0; m < size.models; ++m) sum += rates[m] = 1.0 / (m + 1);
  for (double& rate : rates) rate *= size.rate_per_gpu * size.gpus / sum;
  return rates;
}

}  // namespace

sim::World MakeFleet(const FleetSize& size) {
  config::Fleet fleet;
  // By rate, the least first.
  std::priority_queue<std::pair<double, uint32_t>,
                      std::vector<std::pair<double, uint32_t>>, std::greater<>>
      gpus;
  for (uint32_t g = 0; g < size.gpus; ++g) gpus.emplace(0, g);
  const std::vector<double> rates = MeanRates(size);
  for (uint32_t m = 0; m < size.models; ++m) {
    config::FleetModel model;
    model.name = NameOf(m);
    model.slo_ttft_ms = 1000;
    model.kv_token_bytes = m % 2 == 0 ? 131072 : 65536;
    model.profile = config::StepProfile{8000, 40, 60};
    fleet.models.push_back(model);
    const auto replicas = std::min(
        size.gpus, static_cast<uint32_t>(std::ceil(rates[m] / kReplicaRate)));
    std::vector<std::pair<double, uint32_t>> used;
    for (uint32_t r = 0; r < replicas; ++r) {
      auto [rate, gpu] = gpus.top();
      gpus.pop();
      config::FleetEngine engine;
      engine.name = absl::StrCat(model.name, "-", r);
      engine.model = model.name;
      engine.gpu = absl::StrCat("GPU-", gpu);
      fleet.engines.push_back(engine);
      used.emplace_back(rate + rates[m] / replicas, gpu);
    }
    for (const auto& gpu : used) gpus.push(gpu);
  }
  sim::Site site;
  site.pool_bytes = uint64_t{48} << 30;
  for (const config::FleetModel& m : fleet.models) {
    site.models[m.name].longest_tokens = 4096;
  }
  absl::StatusOr<sim::World> world = sim::MakeWorld(fleet, site);
  if (!world.ok()) {
    fprintf(stderr, "sim: %s\n", std::string(world.status().message()).c_str());
    abort();  // it is made above
  }
  return *std::move(world);
}

workload::Trace MakeLoad(const FleetSize& size,
                         const workload::RateShapes& shapes,
                         const std::vector<workload::Lengths>& lengths,
                         uint64_t seed) {
  const std::vector<double> rates = MeanRates(size);
  std::vector<const std::vector<double>*> rows;
  for (const auto& [model, shape] : shapes) rows.push_back(&shape);
  workload::Slots slots;
  slots.seconds = workload::kShapeSlotSeconds;
  for (double from = 0; from < size.seconds; from += slots.seconds) {
    const size_t slot = slots.streams.size();
    std::vector<workload::Stream> streams;
    for (uint32_t m = 0; m < size.models; ++m) {
      const std::vector<double>& shape = *rows[m % rows.size()];
      const double now = shape[(m / rows.size() + slot) % shape.size()];
      streams.push_back({NameOf(m), rates[m] * now});
    }
    slots.streams.push_back(std::move(streams));
  }
  workload::Trace trace =
      workload::PoissonBySlots(slots, size.seconds, lengths, seed);
  for (workload::Arrival& a : trace.arrivals) {
    // The simulator refuses what is longer, as engines do.
    a.lengths.input = std::min(a.lengths.input, 3000u);
    a.lengths.output = std::min(a.lengths.output, 1000u);
  }
  return trace;
}

}  // namespace fineserve::bench
