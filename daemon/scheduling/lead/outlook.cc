#include "daemon/scheduling/lead/outlook.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::lead {
namespace {

constexpr double kMilli = 1e-3;
// Rate assumed for a model without requests, so that it keeps a place.
constexpr double kLeastRate = 0.01;
// Heuristics, for a model of which nothing was ever seen or expected.
constexpr double kGuessedPrompt = 512;
constexpr double kGuessedAnswer = 128;

bool SizesKnown(const config::FleetModel& m) {
  return m.measured && m.measured->weight_bytes > 0 && m.kv_token_bytes > 0 &&
         !m.measured->points.empty();
}

double FirstAbove0(double a, double b, double c) {
  return a > 0 ? a : b > 0 ? b : c;
}

// The planner knows a profile by three words; each model has its own here.
plan::Profile ProfileOf(const config::FleetModel& m) {
  plan::Profile p = {m.name,
                     "",
                     1,
                     m.measured->weight_bytes,
                     m.measured->activation_bytes,
                     static_cast<double>(m.kv_token_bytes),
                     {}};
  for (const config::ProfilePoint& point : m.measured->points) {
    p.points.push_back(
        {point.batch, point.prompt_tokens, point.ttft_s, point.step_s});
  }
  return p;
}

}  // namespace

Outlook::Outlook(const config::Fleet& fleet, const StandingPlan& plan,
                 const std::map<std::string, GpuMemory>& gpus,
                 const std::map<std::string, Demand>& demand)
    : fleet_(fleet), plan_(plan), gpus_(gpus), demand_(demand) {}

std::string Outlook::GpuOf(const config::FleetEngine& engine) const {
  // An engine of a fleet with one GPU need not name it.
  for (const auto& [uuid, facts] : gpus_) {
    if (finding::MeansGpu(engine.gpu, uuid)) return uuid;
  }
  return "";
}

const config::FleetEngine* Outlook::PlaceOn(const std::string& model,
                                            const std::string& gpu) const {
  for (const config::FleetEngine& e : fleet_.engines) {
    if (e.is_place && e.model == model && GpuOf(e) == gpu) return &e;
  }
  return nullptr;
}

std::map<std::string, std::string> Outlook::Serving(
    const std::string& model) const {
  std::map<std::string, std::string> serving;
  for (const config::FleetEngine& e : fleet_.engines) {
    if (e.model != model) continue;
    if (e.is_place && plan_.StateOf(e.name) != PlaceState::kServe) continue;
    serving[GpuOf(e)] = e.name;
  }
  return serving;
}

bool Outlook::Runs(const config::FleetEngine& engine) const {
  return !engine.is_place || plan_.StateOf(engine.name) != PlaceState::kOff;
}

Demand Outlook::PlannedDemand(const config::FleetModel& m) const {
  const auto found = demand_.find(m.name);
  const Demand seen = found == demand_.end() ? Demand() : found->second;
  Demand d = seen;
  d.rate = seen.seconds > 0 ? std::max(seen.rate, kLeastRate)
                            : std::max(m.expected_rate, kLeastRate);
  d.prompt_tokens =
      FirstAbove0(seen.prompt_tokens, m.expected_prompt_tokens, kGuessedPrompt);
  d.output_tokens =
      FirstAbove0(seen.output_tokens, m.expected_output_tokens, kGuessedAnswer);
  return d;
}

double Outlook::Shortfall(const config::FleetEngine& engine) const {
  const auto gpu = gpus_.find(GpuOf(engine));
  if (gpu == gpus_.end()) return 0;
  double beside_pool = gpu->second.memory_bytes - gpu->second.pool_bytes;
  double pool = gpu->second.pool_bytes;
  for (const config::FleetEngine& e : fleet_.engines) {
    if (GpuOf(e) != gpu->first || !(Runs(e) || e.name == engine.name)) continue;
    const config::FleetModel& m = fleet_.models[fleet_.ModelIndex(e.model)];
    pool -= static_cast<double>(e.floor_bytes);
    if (!SizesKnown(m)) continue;
    beside_pool -= m.measured->weight_bytes + m.measured->activation_bytes;
  }
  return std::max(-beside_pool, -pool);
}

std::vector<std::string> Outlook::PinsOf(
    const std::string& pin,
    const std::map<std::string, std::string>& serving) const {
  if (gpus_.count(pin) > 0) return {pin};
  std::vector<std::string> gpus;
  for (const auto& [gpu, engine] : serving) {
    if (!gpu.empty()) gpus.push_back(gpu);
  }
  return gpus;
}

plan::Snapshot Outlook::With(const StandingPlan& standing, bool free) const {
  const Outlook now(fleet_, standing, gpus_, demand_);
  plan::Snapshot s;
  for (const auto& [uuid, facts] : gpus_) {
    s.gpus.push_back({uuid, "", facts.memory_bytes, 0, facts.pool_bytes});
  }
  for (const config::FleetModel& m : fleet_.models) {
    if (!SizesKnown(m)) continue;
    const Demand d = PlannedDemand(m);
    plan::ModelDemand reported;
    reported.name = reported.architecture = m.name;
    reported.rate = d.rate;
    reported.prompt_tokens = d.prompt_tokens;
    reported.output_tokens = d.output_tokens;
    reported.slo_ttft_s = m.slo_ttft_ms * kMilli;
    reported.slo_tpot_s = m.slo_tpot_ms * kMilli;
    reported.max_batch = m.max_batch;
    bool moves = false;
    uint32_t engines = 0;
    for (const config::FleetEngine& e : fleet_.engines) {
      if (e.model != m.name || GpuOf(e).empty()) continue;
      ++engines;
      moves |= e.is_place;
      reported.floor_bytes =
          std::max(reported.floor_bytes, static_cast<double>(e.floor_bytes));
      reported.pins.push_back(GpuOf(e));
    }
    if (engines == 0) continue;
    const auto serving = now.Serving(m.name);
    const auto pin = standing.pins.find(m.name);
    if (moves && pin != standing.pins.end()) {
      reported.pins = PinsOf(pin->second, serving);
      if (reported.pins.empty()) continue;
    }
    for (const auto& [gpu, name] : serving) {
      if (!gpu.empty()) s.current.push_back({m.name, {gpu}});
    }
    const auto places = static_cast<uint32_t>(reported.pins.size());
    reported.replicas = !moves || (!free && !serving.empty())
                            ? static_cast<uint32_t>(serving.size())
                            : std::min(m.replicas, places);
    s.models.push_back(std::move(reported));
    s.profiles.push_back(ProfileOf(m));
  }
  return s;
}

plan::Snapshot Outlook::Free() const { return With(plan_, true); }

plan::Snapshot Outlook::AsItIs() const { return With(plan_, false); }

plan::Snapshot Outlook::After(const std::string& on,
                              const std::string& off) const {
  StandingPlan changed = plan_;
  if (Place* place = changed.Find(on)) place->state = PlaceState::kServe;
  if (Place* place = changed.Find(off)) place->state = PlaceState::kOff;
  return With(changed, false);
}

std::vector<std::string> Outlook::Troubles() const {
  std::vector<std::string> lines;
  for (const config::FleetModel& m : fleet_.models) {
    if (SizesKnown(m)) continue;
    lines.push_back(absl::StrCat(
        "model \"", m.name,
        "\" is not planned for, because its profile names no weight_bytes, "
        "kv_token_bytes or points: what its engines take is not counted"));
  }
  return lines;
}

}  // namespace fineserve::lead
