// FineServe, Figure 3: cached tokens by the size of the KV pool.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/fineserve/fineserve_scene.h"
#include "tools/lab/workload/arrivals.h"

namespace fineserve::bench {
namespace {

constexpr workload::Lengths kLengths = {512, 512};
constexpr double kRate = 60;  // requests/s: more than any of them serves
constexpr double kGigabyte = 1e9;

// Returns the average number of tokens in the cache over `seconds`: from its
// first token on, a request holds its prompt and the tokens that it has
// generated.
double CachedTokens(const std::vector<workload::Outcome>& outcomes,
                    double seconds) {
  double sum = 0;
  for (const workload::Outcome& o : outcomes) {
    if (o.end != workload::End::kDone || o.first_token_s >= seconds) continue;
    const double all = std::max(o.end_s - o.first_token_s, 1e-9);
    const double span = std::min(o.end_s, seconds) - o.first_token_s;
    const double mean_output = o.lengths.output * span / all / 2;
    sum += (o.lengths.input + mean_output) * span;
  }
  return sum / seconds;
}

Scene SceneOf(const Data& data, const Variant& variant, double kv_bytes,
              double seconds) {
  FineServeSetting setting;
  setting.models = {variant};
  setting.gpus = 1;
  setting.rate = kRate;
  Scene scene = FineServeScene(data, setting);
  const plan::Profile& p =
      *plan::FindProfile(data.profiles, scene.snapshot.models[0]);
  scene.snapshot.models[0].floor_bytes = 0;
  scene.snapshot.gpus[0].memory_bytes =
      p.weight_bytes + p.activation_bytes + kv_bytes;
  scene.longest_tokens = kLengths.input + kLengths.output;
  scene.load = [name = variant.name, seconds](uint64_t seed) {
    return workload::Poisson({{name, kRate}}, seconds, {kLengths}, seed);
  };
  return scene;
}

}  // namespace

Figure FineServeFigure3(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "fs3";
  f.title = "FineServe, Figure 3: cached tokens by the size of the KV pool";
  f.question =
      "Does a byte of KV hold more tokens the lower its precision, whatever "
      "the pool's size?";
  const std::vector<double> pools = {1, 2, 4, 6};
  const System alone{"", "dedicated", plan::Tier::kPaper, Parts::kPool,
                     Local::kFcfs};
  const std::vector<Variant> variants = {
      {"FP16", "llama-3.1-8b", "org"},
      {"AWQ (FP16 KV)", "llama-3.1-8b", "awq"},
      {"FP8 (FP8 KV)", "llama-3.1-8b", "fp8_kv8"},
      {"QoQ (INT4 KV)", "llama-3-8b", "qoq"}};
  Panel panel{"Cached tokens", "KV pool (GB)", "tokens", pools, {}, {}};
  std::vector<std::vector<double>> slopes;  // by variant and seed
  for (const Variant& variant : variants) {
    Curve curve{variant.name, {}};
    std::vector<std::vector<double>> cached;
    for (const double pool : pools) {
      const Runs runs =
          Serve(alone, SceneOf(data, variant, pool * kGigabyte, effort.seconds),
                effort.seeds);
      cached.push_back(runs.Values([&](const Measured& m) {
        return CachedTokens(m.outcomes, effort.seconds);
      }));
      curve.y.push_back(MeanOf(cached.back()));
    }
    slopes.emplace_back();
    for (size_t seed = 0; seed < cached[0].size(); ++seed) {
      slopes.back().push_back((cached.back()[seed] - cached[0][seed]) /
                              (pools.back() - pools[0]));
    }
    panel.curves.push_back(curve);
  }
  f.panels = {panel};
  const auto compare = [&](size_t variant, double by_size) {
    Comparison c;
    c.what = absl::StrCat("slope, ", variants[variant].name, " over FP16");
    c.sense = Sense::kAbout;
    c.paper = by_size;
    c.ours = RatioOf(slopes[variant], slopes[0]);
    f.comparisons.push_back(c);
  };
  compare(1, 1);
  compare(2, 131072.0 / 65536);
  compare(3, 131072.0 / 34816);
  f.provenance = {
      "steps: the authors' profile; requests of 512 tokens in and 512 out, as "
      "the paper has fixed lengths; the lengths, and a rate of 60/s that fills "
      "every pool, are ours",
      "the paper's text prints no number; taken for it: the ratio of the "
      "models' bytes a token (FP16 131,072, FP8 65,536, QoQ 34,816)"};
  f.because = "the batch of 256 sequences or the engine's speed binds first";
  return f;
}

}  // namespace fineserve::bench
