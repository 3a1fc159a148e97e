#include "bench/paper/compared_systems/engines.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "bench/paper/compared_systems/released_policies.h"
#include "bench/report/report.h"
#include "daemon/scheduling/global/score/sharing.h"
#include "daemon/scheduling/local/predict/profile_fit.h"

namespace fineserve::bench {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kMostSequences = 256;
constexpr uint64_t kSlabBytes = uint64_t{32} << 20;
constexpr double kReleasedPrompt = 0.8 * 903;
constexpr double kReleasedLeastTokens = 2048;  // that each released pool holds
// The released pool is the device's memory less 1.8 times the weights
// (KVSlabManager's init); an H100 of 80 GB has 79.6 GiB.
constexpr double kReleasedWeights = 1.8, kDeviceGib = 79.6;
constexpr double kGib = 1 << 30;
// Time in which an unchanged engine leaves, as measured on an H100: 29 ms for 8
// GiB (bench/results).
constexpr double kLeaveUsPerByte = 29e3 / (8 * kGib);

// Part of a GPU that an engine takes if it has the GPU for itself, so that no
// second engine fits; the rest is for KV.
constexpr double kMoreThanHalf = 0.51;

// Returns the size that the released slab manager assumes for a model's
// weights: the nominal size at the bits of its format, in GiB.
double NominalGib(const plan::Profile& p) {
  double billions = 8;
  if (p.architecture == "llama-3.1-70b") billions = 70;
  if (p.architecture == "qwen-3-32b") billions = 32;
  if (p.quantisation == "org") return billions * 2;
  return p.quantisation == "fp8_kv8" ? billions : billions / 2;
}

uint32_t LayersOf(const std::string& architecture) {
  if (architecture == "llama-3.1-70b") return 80;
  if (architecture == "qwen-3-32b") return 64;
  return 32;
}

sched::Micros MicrosOf(double seconds) {
  return static_cast<sched::Micros>(seconds * 1e6);
}

// Puts engines on GPUs one by one.
class Builder {
 public:
  Builder(const System& system, const Scene& scene, const plan::Assignment& a)
      : system_(system), scene_(scene), a_(a), problem_(a.problem()) {
    for (const plan::Gpu& gpu : problem_.gpus) {
      residents_[static_cast<uint32_t>(world_.gpu_names.size())];
      world_.gpu_names.push_back(gpu.name);
    }
    world_.gpus.resize(problem_.gpus.size());
    for (const plan::ModelDemand& m : problem_.models) {
      world_.models.push_back(
          {m.name, {m.slo_ttft_s, m.slo_tpot_s}, StepOf(ProfileOf(m)), {}});
    }
  }

  sim::World Take() {
    for (uint32_t r = 0; r < problem_.replicas.size(); ++r) {
      if (a_.Hosted(r) && problem_.replicas[r].tp == 1) AddEngine(r);
    }
    for (uint32_t g = 0; g < world_.gpus.size(); ++g) FinishGpu(g);
    return std::move(world_);
  }

 private:
  const plan::Profile& ProfileOf(const plan::ModelDemand& m) const {
    return *plan::FindProfile(scene_.snapshot.profiles, m);
  }
  const plan::ModelDemand& ModelOf(uint32_t replica) const {
    return problem_.models[problem_.replicas[replica].model];
  }
  double CapacityOf(uint32_t gpu) const {
    for (const plan::Gpu& g : scene_.snapshot.gpus) {
      if (g.name == problem_.gpus[gpu].name) return g.Capacity();
    }
    return 0;
  }
  double TrulyFixed(uint32_t replica) const {
    const plan::Profile& p = ProfileOf(ModelOf(replica));
    return p.weight_bytes + p.activation_bytes;
  }

  void AddEngine(uint32_t replica) {
    const plan::Replica& r = problem_.replicas[replica];
    const plan::ModelDemand& m = problem_.models[r.model];
    const plan::Profile& p = ProfileOf(m);
    const uint32_t gpu_place = a_.GroupOf(replica)[0];
    sim::GpuSetup& gpu = world_.gpus[gpu_place];
    const sched::Profile step = StepOf(p);
    const uint32_t batch =
        system_.slo_batch ? ReleasedBatch(p, m.slo_ttft_s) : kMostSequences;
    world_.models[r.model].replicas.push_back(
        {gpu_place, static_cast<uint32_t>(gpu.models.size()), r.rate});
    sim::EngineSetup engine;
    engine.name = problem_.NameOf(replica);
    engine.model = static_cast<uint32_t>(gpu.models.size());
    engine.limits = {scene_.chunk_tokens, batch, kBlockTokens};
    engine.step_time = {step};
    engine.kv_token_bytes = static_cast<uint64_t>(p.kv_token_bytes);
    engine.longest_tokens = scene_.longest_tokens;
    engine.format = {1, engine.kv_token_bytes * kBlockTokens, kBlockTokens};
    engine.weight_bytes = static_cast<uint64_t>(p.weight_bytes);
    gpu.models.push_back({engine.name, MicrosOf(m.slo_ttft_s),
                          MicrosOf(m.slo_tpot_s), scene_.chunk_tokens, batch,
                          step});
    gpu.engines.push_back(engine);
    residents_[gpu_place].push_back(replica);
  }

  void FinishGpu(uint32_t g) {
    sim::GpuSetup& gpu = world_.gpus[g];
    gpu.slowdown = scene_.slowdown;
    SetPolicy(g);
    double pool = CapacityOf(g);
    for (const uint32_t r : residents_[g]) pool -= TrulyFixed(r);
    if (system_.parts == Parts::kLayers) {
      pool = PoolOfLayers(g, ReleasedPool(g));
    }
    if (system_.parts == Parts::kFootprint || system_.parts == Parts::kEqual) {
      SetParts(g);
      pool = 0;
    }
    if (system_.eviction) {
      SetEviction(g);
      pool = static_cast<double>(gpu.eviction->gpu_bytes);
    }
    const auto slabs = static_cast<uint32_t>(std::max(0.0, pool) /
                                             static_cast<double>(kSlabBytes));
    // Each view always has the KV of its longest request.
    uint32_t least = 0;
    for (const sim::EngineSetup& e : gpu.engines) {
      if (e.own_tokens > 0) continue;
      const uint64_t bytes = e.kv_token_bytes * scene_.longest_tokens;
      least += static_cast<uint32_t>(bytes / kSlabBytes) + 2;
    }
    if (least > 0) gpu.geometry = {kSlabBytes, 1, std::max(slabs, least)};
  }

  // Activations stay, since they are workspaces of a process's steps.
  void SetEviction(uint32_t g) {
    double bytes = CapacityOf(g);
    double largest = 0;
    for (const uint32_t r : residents_[g]) {
      const plan::Profile& p = ProfileOf(ModelOf(r));
      bytes -= p.activation_bytes;
      largest = std::max(largest, p.weight_bytes);
    }
    const Eviction& ways = *system_.eviction;
    if (ways.takes_turns) {
      largest = kMoreThanHalf * bytes;
      for (sim::EngineSetup& e : world_.gpus[g].engines) {
        e.weight_bytes = static_cast<uint64_t>(largest);
      }
    }
    sim::EvictionSetup eviction;
    eviction.policy = ways.policy;
    eviction.gpu_bytes = static_cast<uint64_t>(std::max(bytes, 0.0));
    eviction.link_bytes_per_us =
        ways.back_s > 0 ? largest / (ways.back_s * 1e6) : kLinkBytesPerUs;
    eviction.leave_us =
        ways.leave_s > 0
            ? MicrosOf(ways.leave_s)
            : static_cast<sched::Micros>(largest * kLeaveUsPerByte);
    world_.gpus[g].eviction = eviction;
  }

  // The released manager refuses to start if not even the least KV is left.
  // Here, in favour of the baseline, each engine then has the KV of its longest
  // request.
  double ReleasedPool(uint32_t g) const {
    double pool = kDeviceGib * kGib, least = 0;
    for (const uint32_t r : residents_.at(g)) {
      const plan::Profile& p = ProfileOf(ModelOf(r));
      pool -= kReleasedWeights * NominalGib(p) * kGib;
      least += scene_.longest_tokens * p.kv_token_bytes +
               static_cast<double>(kSlabBytes);
    }
    return std::max(pool, least);
  }

  void SetPolicy(uint32_t g) {
    sim::GpuSetup& gpu = world_.gpus[g];
    switch (system_.local) {
      case Local::kFineServe:
        return;  // as it ships
      case Local::kAlgorithm2:
        gpu.floor_share = 0;
        return;
      case Local::kMooreHodgson:
        gpu.policy = "moore-hodgson";
        return;
      case Local::kFcfs:
        gpu.policy = "fcfs";
        return;
      case Local::kReleasedAlgorithm2:
        return SetReleased(g, ReleasedPolicy::Kind::kAlgorithm2);
      case Local::kReleasedPrism:
        return SetReleased(g, ReleasedPolicy::Kind::kPrism);
      case Local::kReleasedFcfs:
        return SetReleased(g, ReleasedPolicy::Kind::kFcfs);
    }
  }

  void SetReleased(uint32_t g, ReleasedPolicy::Kind kind) {
    std::vector<ReleasedModel> models;
    for (size_t i = 0; i < residents_[g].size(); ++i) {
      models.push_back(
          {ReleasedUsPerToken(ProfileOf(ModelOf(residents_[g][i]))),
           world_.gpus[g].engines[i].limits.max_batch});
    }
    world_.gpus[g].make_policy = [kind, models] {
      return std::make_unique<ReleasedPolicy>(kind, models);
    };
  }

  void SetOwn(sim::EngineSetup* engine, double bytes) const {
    const double tokens = bytes / static_cast<double>(engine->kv_token_bytes);
    engine->own_tokens = static_cast<uint64_t>(
        std::max(tokens, double{1} * scene_.longest_tokens));
  }

  // Gives each engine a fixed part of the GPU, of which its true weights and
  // activations leave the rest for KV.
  void SetParts(uint32_t g) {
    const auto sharing = system_.parts == Parts::kEqual
                             ? plan::Sharing::kEqual
                             : plan::Sharing::kFootprint;
    std::map<uint32_t, double> kv;
    for (const plan::Share& s : plan::SharesOf(a_, sharing, 1)) {
      kv[s.replica] = s.kv_bytes;
    }
    for (size_t i = 0; i < residents_[g].size(); ++i) {
      const uint32_t r = residents_[g][i];
      SetOwn(&world_.gpus[g].engines[i],
             kv[r] + problem_.replicas[r].fixed_bytes - TrulyFixed(r));
    }
  }

  // Engines that are alone in their depth get their part for themselves.
  // Returns the rest, which the others share as one pool. (Two pools of several
  // engines each do not occur: our scenes have one deep model per GPU.)
  double PoolOfLayers(uint32_t g, double kv_bytes) {
    std::map<uint32_t, std::vector<size_t>> of_depth;
    std::map<uint32_t, double> least, demand;
    double spare = kv_bytes, all = 0;
    for (size_t i = 0; i < residents_[g].size(); ++i) {
      const plan::ModelDemand& m = ModelOf(residents_[g][i]);
      const uint32_t layers = LayersOf(m.architecture);
      const double tokens = kReleasedLeastTokens * ProfileOf(m).kv_token_bytes;
      of_depth[layers].push_back(i);
      least[layers] += tokens;
      spare -= tokens;
      demand[layers] += m.rate * layers;
      all += m.rate * layers;
    }
    if (of_depth.size() < 2) return kv_bytes;
    double left = kv_bytes;
    for (const auto& [layers, engines] : of_depth) {
      if (engines.size() > 1) continue;
      const double part =
          least[layers] + std::max(0.0, spare) * demand[layers] / all;
      SetOwn(&world_.gpus[g].engines[engines[0]], part);
      left -= part;
    }
    return left;
  }

  const System& system_;
  const Scene& scene_;
  const plan::Assignment& a_;
  const plan::Problem& problem_;
  sim::World world_;
  std::map<uint32_t, std::vector<uint32_t>> residents_;  // by GPU
};

}  // namespace

sched::Profile StepOf(const plan::Profile& profile) {
  std::vector<sched::ProfileRow> rows;
  for (const plan::OperatingPoint& p : profile.points) {
    rows.push_back({p.batch, p.prompt_tokens, p.ttft_s, p.tpot_s});
  }
  const auto fit = sched::FitProfile(rows);
  if (!fit.ok()) Die(fit.status().ToString());
  return fit->profile;
}

double ReleasedUsPerToken(const plan::Profile& profile) {
  double sum = 0, rows = 0;
  for (const plan::OperatingPoint& p : profile.points) {
    if (p.batch != 1) continue;
    sum += 1e6 * p.ttft_s / p.prompt_tokens;
    ++rows;
  }
  return sum / rows;
}

uint32_t ReleasedBatch(const plan::Profile& profile, double slo_s) {
  const std::vector<uint32_t> batches = plan::Batches(profile);
  const auto ttft = [&](size_t i) {
    double per_token = 0, rows = 0;
    for (const plan::OperatingPoint& p : profile.points) {
      if (p.batch != batches[i]) continue;
      per_token += p.ttft_s / p.prompt_tokens;
      ++rows;
    }
    return per_token / rows * kReleasedPrompt;
  };
  size_t high = 1;
  while (high + 1 < batches.size() && ttft(high) < slo_s) ++high;
  const double slope =
      (batches[high] - batches[high - 1]) / (ttft(high) - ttft(high - 1));
  const double batch = batches[high - 1] + (slo_s - ttft(high - 1)) * slope;
  return static_cast<uint32_t>(
      std::clamp(std::floor(batch), 1.0, double{1} * kMostSequences));
}

sim::World EnginesOf(const System& system, const Scene& scene,
                     const plan::Assignment& assignment) {
  return Builder(system, scene, assignment).Take();
}

}  // namespace fineserve::bench
