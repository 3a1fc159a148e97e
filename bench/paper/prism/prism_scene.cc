#include "bench/paper/prism/prism_scene.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/lab/workload/arrivals.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::bench {
namespace {

constexpr double kBaseQuantile = 0.95;

std::string NameOf(uint32_t model) {
  return absl::StrCat("m", model / 10, model % 10);
}

// Returns the trace for n models: merged if there are fewer than the trace has;
// if there are more, its requests are repeated half a trace later.
workload::Trace For(const workload::Trace& trace, uint32_t n) {
  const auto own = static_cast<uint32_t>(trace.models.size());
  const double seconds = trace.seconds();
  workload::Trace made;
  for (uint32_t m = 0; m < n; ++m) made.models.push_back(NameOf(m));
  for (workload::Arrival a : trace.arrivals) {
    const uint32_t model = a.model;
    a.model = model % n;
    made.arrivals.push_back(a);
    for (uint32_t more = model + own; more < n; more += own) {
      a.model = more;
      a.at_s = std::fmod(a.at_s + seconds / 2, seconds);
      made.arrivals.push_back(a);
    }
  }
  std::stable_sort(made.arrivals.begin(), made.arrivals.end(),
                   [](const workload::Arrival& x, const workload::Arrival& y) {
                     return x.at_s < y.at_s;
                   });
  return made;
}

// P95 of the model's prompts.
double LongPrompt(const workload::Trace& trace, uint32_t model) {
  std::vector<double> prompts;
  for (const workload::Arrival& a : trace.arrivals) {
    if (a.model == model) prompts.push_back(a.lengths.input);
  }
  return workload::Quantile(prompts, kBaseQuantile);
}

plan::ModelDemand DemandOf(const Data& data, const workload::Trace& trace,
                           uint32_t model, const PrismSetting& setting) {
  plan::ModelDemand m;
  m.name = trace.models[model];
  m.architecture = "llama-3.1-8b";
  m.quantisation = model % 2 == 0 ? "org" : "fp8_kv8";
  m.replicas = 1;
  double n = 0;
  for (const workload::Arrival& a : trace.arrivals) {
    if (a.model != model) continue;
    ++n;
    m.prompt_tokens += a.lengths.input;
    m.output_tokens += a.lengths.output;
  }
  m.prompt_tokens /= n;
  m.output_tokens /= n;
  m.rate = setting.rate_scale * n / trace.seconds();
  const plan::Profile& p = *plan::FindProfile(data.profiles, m);
  const bool is_other = model % 2 != 0 && setting.other_slo_scale > 0;
  const double scale = is_other ? setting.other_slo_scale : setting.slo_scale;
  m.slo_ttft_s = scale * plan::Ttft(p, 1, LongPrompt(trace, model));
  m.slo_tpot_s = setting.tpot_scale * plan::Tpot(p, 1, m.prompt_tokens);
  return m;
}

}  // namespace

Scene PrismScene(const Data& data, const PrismSetting& setting) {
  return SceneOfTrace(data, For(data.arena, setting.models), setting);
}

Scene SceneOfTrace(const Data& data, const workload::Trace& trace,
                   const PrismSetting& setting) {
  Scene scene;
  scene.slowdown = setting.slowdown;
  scene.longest_tokens = setting.longest_tokens;
  scene.snapshot.profiles = data.profiles;
  for (uint32_t model = 0; model < trace.models.size(); ++model) {
    plan::ModelDemand m = DemandOf(data, trace, model, setting);
    m.floor_bytes = scene.longest_tokens *
                    plan::FindProfile(data.profiles, m)->kv_token_bytes;
    scene.snapshot.models.push_back(m);
  }
  for (uint32_t g = 0; g < setting.gpus; ++g) {
    scene.snapshot.gpus.push_back({absl::StrCat("gpu-", g / 10, g % 10),
                                   absl::StrCat("node-", g / kGpusOfNode),
                                   setting.gpu_bytes});
  }
  scene.load = [trace, scale = setting.rate_scale](uint64_t seed) {
    return workload::Scale(trace, scale, seed);
  };
  return scene;
}

Comparison NotBehind(const std::string& ours, const std::string& theirs,
                     Interval lead) {
  Comparison c;
  c.what = absl::StrCat("points, ", ours, " over ", theirs, " (0: not behind)");
  c.even = -1;
  c.ours = lead;
  return c;
}

std::vector<System> PrismSystems() {
  return {OursEvicting(), PrismEvicting(), MuxServePlus(), Partitioned(),
          Qlm(),          Ours(),          Prism()};
}

std::vector<std::string> PrismProvenance() {
  return {
      "arrivals, models and lengths: Prism's own Arena input (arena27, 600 s; "
      "its authors rescaled the clock); steps: the profile of FineServe's "
      "authors",
      "ours: all models are 8B, FP16 and FP8 in turn (Prism's are 1B to 70B, "
      "without a published profile), 80 GB a GPU; one replica each",
      "placements are made once, from the trace's mean rates: idle engines "
      "leave and come back to their GPU, but none migrates. Prism evicts as "
      "printed, at our link's rate, which is faster than its own; QLM's "
      "engines start in 30 s and stay on their GPU's queue"};
}

}  // namespace fineserve::bench
