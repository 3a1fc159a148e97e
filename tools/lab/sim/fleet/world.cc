#include "tools/lab/sim/fleet/world.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::sim {
namespace {

constexpr uint32_t kLongestTokens = 8192;

sched::Profile Of(const config::StepProfile& p) {
  return {p.base_us, p.per_token_us, p.per_sequence_us};
}

absl::Status Missing(const std::string& model, const char* what) {
  return absl::InvalidArgumentError(
      absl::StrCat("model \"", model, "\" needs ", what));
}

// A model of the fleet, with the data that the site adds.
class Model {
 public:
  Model(const config::FleetModel& fleet, const Site& site) : fleet_(fleet) {
    const auto known = site.models.find(fleet.name);
    if (known != site.models.end()) site_ = known->second;
    if (site_.kv_token_bytes == 0) site_.kv_token_bytes = fleet.kv_token_bytes;
    if (!site_.truth) site_.truth = fleet.profile;
    if (site_.longest_tokens == 0) site_.longest_tokens = kLongestTokens;
  }

  absl::Status Check() const {
    if (!site_.truth) {
      return Missing(fleet_.name,
                     "a profile, in the fleet file or as truth in the site "
                     "file: { base_us = 8000, per_token_us = 40, "
                     "per_sequence_us = 60 }");
    }
    if (site_.kv_token_bytes == 0) {
      return Missing(fleet_.name,
                     "kv_token_bytes, in the fleet or the site file");
    }
    const uint64_t block = site_.kv_token_bytes * fleet_.block_tokens;
    if (block % site_.planes != 0) {
      return Missing(fleet_.name,
                     "planes that divide the bytes of one of its blocks");
    }
    return absl::OkStatus();
  }

  double BytesPerToken() const {
    return fleet_.counts_prompts ? 0 : site_.bytes_per_token;
  }

  sched::ModelSpec Spec() const {
    return {fleet_.name,
            sched::Micros{fleet_.slo_ttft_ms} * 1000,
            sched::Micros{fleet_.slo_tpot_ms} * 1000,
            fleet_.chunk_tokens,
            fleet_.max_batch,
            fleet_.profile ? Of(*fleet_.profile) : sched::kGuess};
  }

  // Returns the bytes that an engine takes beside the pool, including its
  // weights; 0: not known.
  uint64_t BesideBytes() const {
    if (!fleet_.measured) return 0;
    return WeightBytes() + fleet_.context_bytes +
           static_cast<uint64_t>(fleet_.measured->activation_bytes);
  }
  uint64_t ContextBytes() const { return fleet_.context_bytes; }
  uint64_t WeightBytes() const {
    if (!fleet_.measured) return 0;
    return static_cast<uint64_t>(fleet_.measured->weight_bytes);
  }

  EngineSetup Engine(const config::FleetEngine& engine, uint32_t place) const {
    EngineSetup setup;
    setup.name = engine.name;
    setup.model = place;
    setup.limits = {fleet_.chunk_tokens, fleet_.max_batch, fleet_.block_tokens};
    setup.step_time = {Of(*site_.truth), site_.tp, site_.exchange_us,
                       site_.exchange_token_us};
    setup.prefix_hits = site_.prefix_hits;
    setup.kv_token_bytes = site_.kv_token_bytes;
    setup.longest_tokens = site_.longest_tokens;
    setup.format = {site_.planes,
                    site_.kv_token_bytes * fleet_.block_tokens / site_.planes,
                    fleet_.block_tokens};
    setup.floor_bytes = engine.floor_bytes;
    setup.cap_bytes = engine.cap_bytes;
    setup.runs = !engine.is_place;
    setup.weight_bytes = site_.weight_bytes;
    return setup;
  }

 private:
  const config::FleetModel& fleet_;
  SiteModel site_;
};

absl::StatusOr<GpuSetup> EmptyGpu(const config::Fleet& fleet,
                                  const Site& site) {
  const uint64_t most_bytes =
      site.eviction ? site.memory_bytes : site.pool_bytes;
  const absl::StatusOr<slab::PoolGeometry> geometry = slab::ChooseGeometry(
      {most_bytes, site.planes, site.slab_bytes, /*granularity=*/2 << 20});
  if (!geometry.ok()) return geometry.status();
  GpuSetup gpu;
  gpu.geometry = *geometry;
  gpu.slowdown = site.slowdown;
  gpu.pool = site.pool;
  gpu.path = site.path;
  gpu.policy = fleet.policy;
  if (site.eviction) {
    EvictionSetup& eviction = gpu.eviction.emplace();
    eviction.policy = *evict::EvictionPolicyNamed(fleet.eviction_policy);
    eviction.gpu_bytes = site.memory_bytes;
    eviction.headroom_bytes = site.eviction->headroom_bytes;
    eviction.scratch_bytes = site.eviction->scratch_bytes;
    eviction.link_bytes_per_us =
        1e-6 * static_cast<double>(site.eviction->link_per_s);
    eviction.leave_us = site.eviction->leave_us;
  }
  return gpu;
}

// Puts the engines of each GPU in the fleet's order, as their daemons list
// them.
class Builder {
 public:
  Builder(const config::Fleet& fleet, const Site& site, const GpuSetup& empty)
      : empty_(empty) {
    world_.least_load = fleet.proxy.least_load;
    for (const config::FleetModel& m : fleet.models) {
      model_of_[m.name] = static_cast<uint32_t>(models_.size());
      models_.emplace_back(m, site);
      world_.models.push_back({m.name,
                               {m.slo_ttft_ms / 1e3, m.slo_tpot_ms / 1e3},
                               m.profile ? Of(*m.profile) : sched::Profile(),
                               {},
                               models_.back().BytesPerToken()});
    }
  }

  absl::Status Add(const config::FleetEngine& engine) {
    if (empty_.eviction && (!engine.may_evict || engine.evict_after_s != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "engine \"", engine.name,
          "\": with the site file's [eviction], engines are simulated that "
          "leave for others: say evict = \"auto\", without evict_after"));
    }
    if (!engine.view) {
      return absl::InvalidArgumentError(
          absl::StrCat("engine \"", engine.name,
                       "\" has no view, and engines with whole slabs are not "
                       "simulated; remove view = false"));
    }
    const auto known = model_of_.find(engine.model);
    if (known == model_of_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "engine \"", engine.name, "\" serves no model of the fleet"));
    }
    const Model& model = models_[known->second];
    if (absl::Status s = model.Check(); !s.ok()) return s;
    const uint32_t gpu = GpuOf(engine.gpu);
    Replica& replica = ReplicaOf(gpu, known->second);
    replica.target_rate += engine.target_rate;
    std::vector<EngineSetup>& engines = world_.gpus[gpu].engines;
    const auto place = static_cast<uint32_t>(engines.size());
    replica.engines.push_back({place, engine.target_rate});
    engines.push_back(model.Engine(engine, replica.model));
    if (engine.is_place) {
      places_.push_back({engine, gpu, place, model.WeightBytes(),
                         model.BesideBytes(), model.ContextBytes()});
    } else {
      beside_[gpu] += model.BesideBytes();
    }
    return absl::OkStatus();
  }

  World Take(const config::Fleet& fleet, const Site& site) {
    if (!places_.empty()) {
      world_.planning = PlanningSetup{
          fleet,     world_.gpu_names,   site.memory_bytes, site.pool_bytes,
          site.hand, std::move(places_), std::move(beside_)};
    }
    return std::move(world_);
  }

 private:
  uint32_t GpuOf(const std::string& name) {
    const auto [place, is_new] =
        gpus_.try_emplace(name, static_cast<uint32_t>(gpus_.size()));
    if (is_new) {
      world_.gpu_names.push_back(name);
      world_.gpus.push_back(empty_);
      beside_.push_back(0);
    }
    return place->second;
  }

  Replica& ReplicaOf(uint32_t gpu, uint32_t model) {
    std::vector<Replica>& all = world_.models[model].replicas;
    for (Replica& r : all) {
      if (r.gpu == gpu) return r;
    }
    std::vector<sched::ModelSpec>& specs = world_.gpus[gpu].models;
    all.push_back({gpu, static_cast<uint32_t>(specs.size()), 0});
    specs.push_back(models_[model].Spec());
    return all.back();
  }

  const GpuSetup& empty_;
  World world_;
  std::vector<Model> models_;
  std::unordered_map<std::string, uint32_t> model_of_, gpus_;
  std::vector<PlaceSetup> places_;
  std::vector<uint64_t> beside_;  // by GPU
};

absl::Status CheckPlanned(const World& world) {
  if (!world.planning) return absl::OkStatus();
  const PlanningSetup& planning = *world.planning;
  if (planning.memory_bytes > planning.pool_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a planner has to know what is left for weights: say in the site file's "
      "[gpu] how large the device's memory is, more than its pool: memory = "
      "\"80GiB\""));
}

// Every engine must fit, whichever others have left.
absl::Status CheckEvictions(const World& world) {
  for (const GpuSetup& gpu : world.gpus) {
    if (!gpu.eviction) continue;
    if (world.planning) {
      return absl::InvalidArgumentError(
          "a planner's engines are not evicted in the simulator: remove the "
          "site file's [eviction], or the fleet's [planner]");
    }
    for (const EngineSetup& engine : gpu.engines) {
      const uint64_t bytes = engine.weight_bytes + engine.floor_bytes +
                             gpu.eviction->headroom_bytes;
      if (bytes <= gpu.eviction->gpu_bytes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("engine \"", engine.name, "\" has ", bytes,
                       " bytes with the headroom, more than the site file's "
                       "[gpu] memory"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<World> MakeWorld(const config::Fleet& fleet, const Site& site) {
  const absl::StatusOr<GpuSetup> empty = EmptyGpu(fleet, site);
  if (!empty.ok()) return empty.status();
  Builder builder(fleet, site, *empty);
  for (const config::FleetEngine& engine : fleet.engines) {
    if (absl::Status s = builder.Add(engine); !s.ok()) return s;
  }
  World world = builder.Take(fleet, site);
  for (const auto& check : {CheckPlanned, CheckEvictions}) {
    if (absl::Status s = check(world); !s.ok()) return s;
  }
  return world;
}

}  // namespace fineserve::sim
