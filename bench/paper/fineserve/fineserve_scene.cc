#include "bench/paper/fineserve/fineserve_scene.h"

#include "absl/strings/str_cat.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "tools/lab/workload/arrivals.h"

namespace fineserve::bench {
namespace {

constexpr double kGpuBytes = 80e9;

struct Means {
  double input = 0, output = 0;
};
Means MeansOf(const std::vector<workload::Lengths>& lengths) {
  Means means;
  const auto n = static_cast<double>(lengths.size());
  for (const workload::Lengths& l : lengths) {
    means.input += l.input / n;
    means.output += l.output / n;
  }
  return means;
}

}  // namespace

const std::vector<Variant>& TableFourModels() {
  static const auto* models =
      new std::vector<Variant>{{"A", "llama-3.1-8b", "org"},
                               {"B", "llama-3.1-8b", "fp8_kv8"},
                               {"C", "llama-3.1-70b", "awq"}};
  return *models;
}

const std::vector<Variant>& OneGpuModels() {
  static const auto* models =
      new std::vector<Variant>{{"A", "llama-3.1-8b", "org"},
                               {"B", "llama-3.1-8b", "fp8_kv8"},
                               {"C", "llama-3.1-70b", "awq"},
                               {"D", "llama-3.1-8b", "awq"},
                               {"E", "llama-3-8b", "qoq"}};
  return *models;
}

Scene FineServeScene(const Data& data, const FineServeSetting& setting) {
  Scene scene;
  scene.slowdown = setting.slowdown;
  scene.snapshot.profiles = data.profiles;
  const Means means = MeansOf(data.sharegpt);
  std::vector<workload::Stream> streams;
  const double each = setting.rate / static_cast<double>(setting.models.size());
  for (const Variant& variant : setting.models) {
    plan::ModelDemand m;
    m.name = variant.name;
    m.architecture = variant.architecture;
    m.quantisation = variant.quantisation;
    m.rate = each;
    m.prompt_tokens = means.input;
    m.output_tokens = means.output;
    m.replicas = setting.replicas;
    const plan::Profile& profile = *plan::FindProfile(data.profiles, m);
    m.slo_ttft_s = plan::ReleasedSlo(profile, setting.slo_scale);
    m.floor_bytes = scene.longest_tokens * profile.kv_token_bytes;
    scene.snapshot.models.push_back(m);
    streams.push_back({variant.name, each});
  }
  for (uint32_t g = 0; g < setting.gpus; ++g) {
    scene.snapshot.gpus.push_back({absl::StrCat("gpu-", g / 10, g % 10),
                                   absl::StrCat("node-", g / kGpusOfNode),
                                   kGpuBytes});
  }
  const std::vector<workload::Lengths>& lengths = data.sharegpt;
  scene.load = [streams, lengths, seconds = setting.seconds](uint64_t seed) {
    return workload::Poisson(streams, seconds, lengths, seed);
  };
  return scene;
}

std::vector<System> FineServeSystems() {
  return {Ours(),
          FineServeOf(plan::Tier::kPaper),
          FineServeOf(plan::Tier::kReleased),
          PrismStarOf(plan::Tier::kPaper),
          PrismStarOf(plan::Tier::kReleased),
          StaticStarOf(plan::Tier::kPaper),
          StaticStarOf(plan::Tier::kReleased)};
}

}  // namespace fineserve::bench
