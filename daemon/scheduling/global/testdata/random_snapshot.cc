#include "daemon/scheduling/global/testdata/random_snapshot.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_format.h"

namespace fineserve::plan {
namespace {

// Means of ../shared/data/lengths_*: ShareGPT first turn, ShareGPT with its
// accumulated context, arXiv summarisation.
constexpr ModelLoad kSets[] = {{1, 242, 327}, {1, 2343, 439}, {1, 2581, 293}};
constexpr double kSloScale = 20;
constexpr double kMixedBytes[] = {40e9, 80e9, 141e9};
constexpr double kPlainBytes = 80e9;
constexpr int kDraws = 50;

class Draw {
 public:
  Draw(const std::vector<Profile>& profiles, const RandomKind& kind,
       uint64_t seed)
      : profiles_(profiles), kind_(kind), random_(seed) {
    snapshot_.profiles = profiles;
  }

  Snapshot Run() {
    DrawGpus();
    for (uint32_t m = 0; m < kind_.models; ++m) DrawModel(m);
    SetRates();
    return std::move(snapshot_);
  }

 private:
  uint64_t UpTo(uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(0, most)(random_);
  }

  void DrawGpus() {
    for (uint32_t g = 0; g < kind_.gpus; ++g) {
      Gpu gpu;
      gpu.name = absl::StrFormat("gpu-%04d", g);
      gpu.node = absl::StrFormat("node-%04d", g / kind_.gpus_of_node);
      gpu.memory_bytes = kind_.mixed_gpus ? kMixedBytes[UpTo(2)] : kPlainBytes;
      memory_ += gpu.memory_bytes;
      largest_ = std::max(largest_, gpu.memory_bytes);
      snapshot_.gpus.push_back(gpu);
    }
  }

  // Draws a profile that fits a GPU and leaves the remaining models their part.
  const Profile& DrawProfile(uint32_t drawn) {
    const double left = kind_.weights * memory_ - weights_;
    const double fair = 2 * left / (kind_.models - drawn);
    const Profile* chosen = nullptr;
    for (int i = 0; i < kDraws; ++i) {
      const Profile& p = profiles_[UpTo(profiles_.size() - 1)];
      const double bytes = p.weight_bytes + p.activation_bytes;
      const bool fits = bytes / p.tp < 0.8 * largest_ &&
                        p.tp <= std::min(kind_.gpus, kind_.gpus_of_node);
      if (fits && bytes <= fair) return p;
      if (fits &&
          (chosen == nullptr || p.weight_bytes < chosen->weight_bytes)) {
        chosen = &p;
      }
    }
    return chosen != nullptr ? *chosen : profiles_[0];
  }

  ModelLoad DrawLoad() {
    if (!kind_.loads.empty()) return kind_.loads[UpTo(kind_.loads.size() - 1)];
    ModelLoad load = kSets[UpTo(2)];
    // Zipf: the k-th model has 1/k of the first one's rate.
    load.rate = 1.0 / static_cast<double>(1 + UpTo(kind_.models - 1));
    return load;
  }

  void DrawModel(uint32_t number) {
    const Profile& profile = DrawProfile(number);
    weights_ += profile.weight_bytes + profile.activation_bytes;
    const ModelLoad load = DrawLoad();
    ModelDemand m;
    m.name = absl::StrFormat("model-%05d", number);
    m.architecture = profile.architecture;
    m.quantisation = profile.quantisation;
    m.tp = profile.tp;
    m.prompt_tokens = load.prompt_tokens;
    m.output_tokens = load.output_tokens;
    m.slo_ttft_s =
        kSloScale * Ttft(profile, Batches(profile).front(), m.prompt_tokens);
    m.rate = load.rate;
    m.replicas = kind_.one_replica ? 1 : 0;
    snapshot_.models.push_back(m);
  }

  // Scales the rates until the models need their part of the memory that is
  // left, by Little's law for engines that are not yet slowed by their batch.
  void SetRates() {
    double needed = 0;
    for (const ModelDemand& m : snapshot_.models) {
      const Profile& p = *FindProfile(profiles_, m);
      const auto time = FitTokenTime(p, m.prompt_tokens, m.output_tokens);
      needed += m.rate * m.output_tokens * time->c0 *
                (m.prompt_tokens + m.output_tokens) * p.kv_token_bytes;
    }
    const double left = std::max(memory_ - weights_, 0.1 * memory_);
    const double scale = kind_.pressure * left / needed;
    for (ModelDemand& m : snapshot_.models) m.rate *= scale;
  }

  const std::vector<Profile>& profiles_;
  const RandomKind& kind_;
  std::mt19937_64 random_;
  Snapshot snapshot_;
  double memory_ = 0, largest_ = 0, weights_ = 0;
};

}  // namespace

Snapshot RandomSnapshot(const std::vector<Profile>& profiles,
                        const RandomKind& kind, uint64_t seed) {
  return Draw(profiles, kind, seed).Run();
}

}  // namespace fineserve::plan
