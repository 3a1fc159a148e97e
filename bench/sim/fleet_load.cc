#include "bench/sim/fleet_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/workload/arrivals.h"
#include "daemon/config/fleet.h"
#include "tools/sim/fleet/site.h"

namespace fineserve::bench {
namespace {

constexpr double kSlotSeconds = 600;
// Of one engine, some way below what it can serve.
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

absl::StatusOr<RateShapes> ReadRateShapes(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(
      gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) return absl::NotFoundError(path + " cannot be read");
  std::map<std::string, std::vector<double>> rates;
  char line[256];
  gzgets(file.get(), line, sizeof(line));  // the header
  while (gzgets(file.get(), line, sizeof(line)) != nullptr) {
    char model[64];
    double rate = 0;
    if (sscanf(line, "%*f,%63[^,],%lf", model, &rate) != 2) {
      return absl::DataLossError(absl::StrCat(path, ": bad row ", line));
    }
    rates[model].push_back(rate);
  }
  RateShapes shapes;
  for (auto& [model, shape] : rates) {
    double mean = 0;
    for (const double rate : shape) {
      mean += rate / static_cast<double>(shape.size());
    }
    for (double& rate : shape) rate /= mean;
    shapes.push_back(std::move(shape));
  }
  if (shapes.empty()) return absl::DataLossError(path + " has no rates");
  return shapes;
}

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

workload::Trace MakeLoad(const FleetSize& size, const RateShapes& shapes,
                         const std::vector<workload::Lengths>& lengths,
                         uint64_t seed) {
  const std::vector<double> rates = MeanRates(size);
  workload::Trace trace;
  for (double from = 0; from < size.seconds; from += kSlotSeconds) {
    const auto slot = static_cast<size_t>(from / kSlotSeconds);
    std::vector<workload::Stream> streams;
    for (uint32_t m = 0; m < size.models; ++m) {
      const std::vector<double>& shape = shapes[m % shapes.size()];
      const double now = shape[(m / shapes.size() + slot) % shape.size()];
      streams.push_back({NameOf(m), rates[m] * now});
    }
    workload::Trace part =
        workload::Poisson(streams, std::min(kSlotSeconds, size.seconds - from),
                          lengths, seed + slot);
    for (workload::Arrival& a : part.arrivals) {
      // The simulator refuses what is longer, as engines do.
      a.lengths.input = std::min(a.lengths.input, 3000u);
      a.lengths.output = std::min(a.lengths.output, 1000u);
      a.at_s += from;
      trace.arrivals.push_back(a);
    }
    trace.models = std::move(part.models);
  }
  return trace;
}

}  // namespace fineserve::bench
