#include "bench/compare/probes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bench/compare/compared_fleet.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

constexpr double kApartSeconds = 0.1;
constexpr uint32_t kProbes = 80, kPromptTokens = 100;

}  // namespace

workload::Trace AfterProbes(const workload::Trace& trace,
                            std::vector<uint32_t> models) {
  workload::Trace all;
  all.models = trace.models;
  if (models.empty()) {
    models.resize(trace.models.size());
    std::iota(models.begin(), models.end(), 0);
  }
  for (uint32_t i = 0; i < kProbes; ++i) {
    all.arrivals.push_back(
        {kApartSeconds * i, models[i % models.size()], {kPromptTokens, 1}});
  }
  for (workload::Arrival a : trace.arrivals) {
    a.at_s += kProbeSeconds;
    all.arrivals.push_back(a);
  }
  return all;
}

absl::optional<sim::PathTimes> PathOf(
    const std::vector<workload::Outcome>& outcomes) {
  std::vector<double> beside_us;
  for (size_t i = 0; i < std::min<size_t>(kProbes, outcomes.size()); ++i) {
    if (outcomes[i].end != workload::End::kDone) continue;
    beside_us.push_back(
        1e6 * (outcomes[i].ttft_s() - Fleet::PrefillSeconds(kPromptTokens)));
  }
  if (beside_us.empty()) return absl::nullopt;
  const double sum = std::max(0.0, workload::Quantile(beside_us, 0.5));
  sim::PathTimes path;
  path.ask_us = path.send_us = path.answer_us =
      static_cast<sim::Micros>(sum / 3);
  return path;
}

}  // namespace fineserve::bench
