#include "daemon/scheduling/lead/outlook.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::lead {
namespace {

constexpr double kMilli = 1e-3;
// Rate assumed for a model without requests, so that it keeps a place.
constexpr double kLeastRate = 0.01;
// Heuristics, for a model with no known or expected requests.
constexpr double kGuessedPrompt = 512;
constexpr double kGuessedAnswer = 128;

bool SizesKnown(const config::FleetModel& m) {
  return m.measured && m.measured->weight_bytes > 0 && m.kv_token_bytes > 0 &&
         !m.measured->points.empty();
}

double FirstAbove0(double a, double b, double c) {
  return a > 0 ? a : b > 0 ? b : c;
}

// Returns the model's profile. The planner identifies a profile by three words;
// here each model has a separate profile.
plan::Profile ProfileOf(const config::FleetModel& m, uint32_t ranks) {
  plan::Profile p = {m.name,
                     "",
                     ranks,
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

GpuGroup Outlook::GpusOf(const config::FleetEngine& engine) const {
  GpuGroup gpus;
  for (const std::string& gpu : engine.Gpus()) {
    // In a fleet with one GPU, an engine need not name the GPU.
    const auto known =
        std::find_if(gpus_.begin(), gpus_.end(), [&gpu](const auto& entry) {
          return finding::MeansGpu(gpu, entry.first);
        });
    if (known == gpus_.end()) return {};
    gpus.push_back(known->first);
  }
  std::sort(gpus.begin(), gpus.end());
  return gpus;
}

const config::FleetEngine* Outlook::PlaceOn(const std::string& model,
                                            const GpuGroup& gpus) const {
  for (const config::FleetEngine& e : fleet_.engines) {
    if (e.is_place && e.model == model && GpusOf(e) == gpus) return &e;
  }
  return nullptr;
}

std::map<GpuGroup, std::string> Outlook::Serving(
    const std::string& model) const {
  std::map<GpuGroup, std::string> serving;
  for (const config::FleetEngine& e : fleet_.engines) {
    if (e.model != model) continue;
    if (e.is_place && plan_.StateOf(e.name) != PlaceState::kServe) continue;
    serving[GpusOf(e)] = e.name;
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
  const GpuGroup gpus = GpusOf(engine);
  if (gpus.empty()) return 0;
  double most = HostShortfall(engine);
  for (const std::string& gpu : gpus) {
    most = std::max(most, GpuShortfall(gpu, gpus_.at(gpu), engine));
  }
  return most;
}

double Outlook::HostShortfall(const config::FleetEngine& engine) const {
  constexpr double kFits = -std::numeric_limits<double>::infinity();
  const std::string node = NodeOf(GpusOf(engine).front());
  const std::map<std::string, double> hosts = Hosts();
  const auto host = hosts.find(node);
  if (host == hosts.end()) return kFits;
  const auto process = [this](const config::FleetEngine& e) {
    return static_cast<double>(
        fleet_.models[fleet_.ModelIndex(e.model)].process_bytes);
  };
  if (process(engine) == 0) return kFits;
  double missing = -host->second;
  for (const config::FleetEngine& e : fleet_.engines) {
    if (!Runs(e) && e.name != engine.name) continue;
    const GpuGroup its = GpusOf(e);
    if (!its.empty() && NodeOf(its.front()) == node) missing += process(e);
  }
  return missing;
}

double Outlook::GpuShortfall(const std::string& gpu, const GpuMemory& memory,
                             const config::FleetEngine& engine) const {
  double beside_pool = memory.memory_bytes - memory.pool_bytes;
  double pool = memory.pool_bytes;
  for (const config::FleetEngine& e : fleet_.engines) {
    if (!(Runs(e) || e.name == engine.name)) continue;
    const GpuGroup its = GpusOf(e);
    if (std::find(its.begin(), its.end(), gpu) == its.end()) continue;
    const config::FleetModel& m = fleet_.models[fleet_.ModelIndex(e.model)];
    pool -= static_cast<double>(e.floor_bytes);
    beside_pool -= static_cast<double>(m.context_bytes);
    if (!SizesKnown(m)) continue;
    beside_pool -= (m.measured->weight_bytes + m.measured->activation_bytes) /
                   static_cast<double>(its.size());
  }
  return std::max(-beside_pool, -pool);
}

std::string Outlook::NodeOf(const std::string& gpu) const {
  const config::Machine* machine = fleet_.cluster.MachineOf(gpu);
  return machine == nullptr ? "" : machine->name;
}

std::map<std::string, double> Outlook::Hosts() const {
  std::map<std::string, double> hosts;
  for (const auto& [uuid, facts] : gpus_) {
    const auto said = static_cast<double>(fleet_.HostBytesOf(uuid));
    const double bytes = said > 0 ? said : facts.host_bytes;
    if (bytes <= 0) continue;
    double& host = hosts.try_emplace(NodeOf(uuid), bytes).first->second;
    host = std::min(host, bytes);
  }
  return hosts;
}

uint32_t Outlook::RanksOf(const std::string& model) const {
  for (const config::FleetEngine& e : fleet_.engines) {
    if (e.model != model) continue;
    const GpuGroup gpus = GpusOf(e);
    if (!gpus.empty()) return static_cast<uint32_t>(gpus.size());
  }
  return 0;
}

std::vector<GpuGroup> Outlook::Pinned(
    const std::vector<GpuGroup>& places, const std::string& pin,
    const std::map<GpuGroup, std::string>& serving) const {
  const bool is_known = gpus_.count(pin) > 0;
  std::vector<GpuGroup> pinned;
  for (const GpuGroup& gpus : places) {
    const bool stays =
        is_known ? std::find(gpus.begin(), gpus.end(), pin) != gpus.end()
                 : serving.count(gpus) > 0;
    if (stays) pinned.push_back(gpus);
  }
  return pinned;
}

plan::Snapshot Outlook::With(const StandingPlan& standing, bool free) const {
  const Outlook now(fleet_, standing, gpus_, demand_);
  plan::Snapshot s;
  for (const auto& [uuid, facts] : gpus_) {
    s.gpus.push_back(
        {uuid, NodeOf(uuid), facts.memory_bytes, 0, facts.pool_bytes});
  }
  for (const auto& [node, bytes] : Hosts()) s.nodes.push_back({node, bytes});
  for (const config::FleetModel& m : fleet_.models) {
    if (!SizesKnown(m)) continue;
    const Demand d = PlannedDemand(m);
    plan::ModelDemand reported;
    reported.name = reported.architecture = m.name;
    reported.tp = RanksOf(m.name);
    if (reported.tp == 0) continue;
    reported.rate = d.rate;
    reported.prompt_tokens = d.prompt_tokens;
    reported.output_tokens = d.output_tokens;
    reported.slo_ttft_s = m.slo_ttft_ms * kMilli;
    reported.slo_tpot_s = m.slo_tpot_ms * kMilli;
    reported.max_batch = m.max_batch;
    reported.context_bytes = static_cast<double>(m.context_bytes);
    reported.process_bytes = static_cast<double>(m.process_bytes);
    bool moves = false;
    std::vector<GpuGroup> places;
    for (const config::FleetEngine& e : fleet_.engines) {
      if (e.model != m.name || GpusOf(e).size() != reported.tp) continue;
      moves |= e.is_place;
      reported.may_rest |= e.is_place && e.may_evict && reported.tp == 1;
      // Each rank's view has the floor.
      reported.floor_bytes =
          std::max(reported.floor_bytes,
                   static_cast<double>(e.floor_bytes) * reported.tp);
      places.push_back(GpusOf(e));
    }
    const auto serving = now.Serving(m.name);
    const auto pin = standing.pins.find(m.name);
    if (moves && pin != standing.pins.end()) {
      places = Pinned(places, pin->second, serving);
      if (places.empty()) continue;
    }
    for (const auto& [gpus, name] : serving) {
      if (!gpus.empty()) s.current.push_back({m.name, gpus});
    }
    reported.replicas =
        !moves || (!free && !serving.empty())
            ? static_cast<uint32_t>(serving.size())
            : std::min(m.replicas, static_cast<uint32_t>(places.size()));
    s.profiles.push_back(ProfileOf(m, reported.tp));
    if (reported.tp == 1) {
      for (const GpuGroup& gpus : places) reported.pins.push_back(gpus.front());
    } else {
      reported.groups = std::move(places);
    }
    s.models.push_back(std::move(reported));
  }
  return s;
}

plan::Snapshot Outlook::Free() const { return With(plan_, true); }

plan::Snapshot Outlook::AsItIs() const { return With(plan_, false); }

plan::Snapshot Outlook::WhileOff(const PlacesOff& off) const {
  StandingPlan running = plan_;
  running.pins.clear();
  for (Place& place : running.places) {
    if (place.state != PlaceState::kOff) place.state = PlaceState::kServe;
  }
  plan::Snapshot s = With(running, false);
  s.off.emplace();
  for (const auto& [name, rests] : off) {
    const config::FleetEngine* e = fleet_.Engine(name);
    if (e == nullptr || Runs(*e)) continue;
    const GpuGroup gpus = GpusOf(*e);
    if (gpus.size() == 1) {
      s.off->push_back({e->model, gpus.front(), rests});
    } else {
      SetAside(*e, &s);
    }
  }
  return s;
}

void Outlook::SetAside(const config::FleetEngine& engine,
                       plan::Snapshot* s) const {
  const config::FleetModel& m = fleet_.models[fleet_.ModelIndex(engine.model)];
  const GpuGroup its = GpusOf(engine);
  for (plan::Gpu& gpu : s->gpus) {
    if (std::find(its.begin(), its.end(), gpu.name) == its.end()) continue;
    gpu.taken_bytes += static_cast<double>(m.context_bytes);
  }
  for (plan::Node& node : s->nodes) {
    if (its.empty() || node.name != NodeOf(its.front())) continue;
    node.host_bytes =
        std::max(1.0, node.host_bytes - static_cast<double>(m.process_bytes));
  }
}

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
