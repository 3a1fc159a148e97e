#ifndef DAEMON_SCHEDULING_LEAD_LEAD_FIXTURE_H_
#define DAEMON_SCHEDULING_LEAD_LEAD_FIXTURE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/lead/demand_window.h"
#include "daemon/scheduling/lead/outlook.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::lead {

// Fleets for this folder's tests: each model has a place on each GPU, "chat-0"
// on the first, "chat-1" on the second.

inline constexpr double kGib = 1024.0 * 1024 * 1024;
inline constexpr uint64_t kSecond = 1'000'000'000;  // ns

// Returns a profile as if an engine took 8 ms for a step, 20 µs more for each
// token of a prompt and 60 µs more for each sequence.
inline config::MeasuredProfile ProfileOf(double weight_bytes) {
  config::MeasuredProfile p;
  p.weight_bytes = weight_bytes;
  p.kv_token_bytes = 131072;
  for (const uint32_t batch : {1u, 8u, 32u, 64u}) {
    for (const uint32_t prompt : {256u, 2048u}) {
      const double ttft = 0.008 + 20e-6 * batch * prompt;
      p.points.push_back({batch, prompt, ttft, 0.008 + 60e-6 * batch, 0, 0, 3});
    }
  }
  return p;
}

inline config::FleetModel ModelOf(const std::string& name, double weight_gib) {
  config::FleetModel m;
  m.name = name;
  m.slo_ttft_ms = 2000;
  m.max_batch = 64;
  m.measured = ProfileOf(weight_gib * kGib);
  m.kv_token_bytes = m.measured->kv_token_bytes;
  m.expected_rate = 0.5;
  m.expected_prompt_tokens = 500;
  m.expected_output_tokens = 200;
  return m;
}

inline void AddPlaces(const std::string& model,
                      const std::vector<std::string>& gpus,
                      config::Fleet* fleet) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    config::FleetEngine e;
    e.name = absl::StrCat(model, "-", i);
    e.model = model;
    e.gpu = gpus[i];
    e.is_place = true;
    fleet->engines.push_back(e);
  }
}

// Lets the model's engine run on both GPUs of any one of these pairs.
inline void AddPairs(const std::string& model,
                     const std::vector<std::vector<std::string>>& pairs,
                     config::Fleet* fleet) {
  std::vector<std::string> first;
  for (const auto& pair : pairs) first.push_back(pair[0]);
  AddPlaces(model, first, fleet);
  const size_t begin = fleet->engines.size() - pairs.size();
  for (size_t i = 0; i < pairs.size(); ++i) {
    fleet->engines[begin + i].rank_gpus = {pairs[i][1]};
  }
}

// Returns a fleet of models with so many GiB of weights each, on so many GPUs.
inline config::Fleet FleetOf(const std::vector<double>& weights_gib,
                             size_t gpus) {
  config::Fleet fleet;
  fleet.planner.on = true;
  std::vector<std::string> uuids;
  for (size_t g = 0; g < gpus; ++g) uuids.push_back(absl::StrCat("GPU-", g));
  for (size_t m = 0; m < weights_gib.size(); ++m) {
    const std::string name(1, static_cast<char>('a' + m));
    fleet.models.push_back(ModelOf(name, weights_gib[m]));
    AddPlaces(name, uuids, &fleet);
  }
  return fleet;
}

using Gpus = std::map<std::string, GpuMemory>;
using Demands = std::map<std::string, Demand>;

// Returns two GPUs with this memory and pools of this size.
inline Gpus Two(double memory_gib, double pool_gib) {
  const GpuMemory gpu = {memory_gib * kGib, pool_gib * kGib};
  return {{"GPU-0", gpu}, {"GPU-1", gpu}};
}

// Returns the plan by which these engines serve, and no others.
inline StandingPlan Serving(const config::Fleet& fleet,
                            const std::vector<std::string>& engines) {
  StandingPlan plan;
  Adapt(fleet, &plan);
  for (const std::string& e : engines) {
    plan.Find(e)->state = PlaceState::kServe;
  }
  return plan;
}

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_LEAD_FIXTURE_H_
