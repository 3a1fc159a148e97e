// FineServe, Figure 11: attainment by the number of GPUs.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/fineserve/fineserve_scene.h"
#include "bench/paper/sweep.h"

namespace fineserve::bench {
namespace {

using plan::Tier;

constexpr double kLeast = 96.9;   // FineServe's lowest point, in %
constexpr double kStatic = 80.1;  // Static*'s first
constexpr uint32_t kCopies = 4;   // of each variant

FineServeSetting SettingOf(uint32_t gpus, double rate, const Effort& effort) {
  FineServeSetting setting;
  setting.models.clear();
  for (uint32_t copy = 0; copy < kCopies; ++copy) {
    for (Variant v : OneGpuModels()) {
      v.name += std::to_string(copy);
      setting.models.push_back(v);
    }
  }
  setting.gpus = gpus;
  setting.rate = rate;
  setting.seconds = effort.seconds / 2;  // of many requests
  return setting;
}

// Returns the highest rate at which the tier's FineServe keeps kLeast on 8
// GPUs.
double RateOf(Tier tier, const Data& data, const Effort& effort) {
  return HighestRate(1, 512, 8, [&](double rate) {
    const Measured m = ServeOnce(
        FineServeOf(tier), FineServeScene(data, SettingOf(8, rate, effort)), 1);
    return 100 * m.all.attainment >= kLeast;
  });
}

// Adds one tier's panel and comparisons.
void AddTier(Tier tier, const std::vector<double>& gpus, const Data& data,
             const Effort& effort, Figure* f) {
  const double rate = RateOf(tier, data, effort);
  const std::vector<System> systems = FineServeSystems();
  const Swept on_time = Sweep(
      {absl::StrFormat("At %.3g requests/s (%s)", rate, plan::TierName(tier)),
       "GPUs",
       "%",
       gpus,
       {},
       {}},
      systems, [&](const System& s, double n) {
        const auto setting = SettingOf(static_cast<uint32_t>(n), rate, effort);
        return Serve(s, FineServeScene(data, setting), effort.seeds)
            .Attainment();
      });
  f->panels.push_back(on_time.panel);
  const auto of = [&](const System& system) -> const Line& {
    size_t i = 0;
    while (systems[i].name != system.name) ++i;
    return on_time.of[i];
  };
  const Line &ours = of(Ours()), &fineserve = of(FineServeOf(tier));
  const Line& prism = of(PrismStarOf(tier));
  const Line& fixed = of(StaticStarOf(tier));
  const auto add = [&](const char* what, Sense sense, double paper,
                       const Interval& its, bool counts = true) {
    Comparison c;
    c.what = absl::StrCat(what, " (", plan::TierName(tier), ")");
    c.sense = sense;
    c.paper = paper;
    c.even = 0;
    c.ours = its;
    c.counts = counts;
    f->comparisons.push_back(c);
  };
  Interval least{100, 0};
  for (const auto& point : fineserve) {
    if (MeanOf(point).mean < least.mean) least = MeanOf(point);
  }
  add("FineServe, lowest of all GPUs, %", Sense::kAbout, kLeast, least);
  add("Static*, 8 GPUs, %", Sense::kAbout, kStatic, MeanOf(fixed[0]));
  add("FineServe on 8 less Prism* on 16 GPUs, points (more than 0)",
      Sense::kGain, 0, DifferenceOf(fineserve[0], prism.back()));
  add("ours less Prism* on 8 GPUs, points (more than 0)", Sense::kGain, 0,
      DifferenceOf(ours[0], prism[0]), false);
  add("ours less Static* on 8 GPUs, points (more than 0)", Sense::kGain, 0,
      DifferenceOf(ours[0], fixed[0]), false);
}

}  // namespace

Figure FineServeFigure11(const Data& data, const Effort& full) {
  Effort effort = full;
  effort.seeds = std::min(effort.seeds, 3u);  // these runs are long
  Figure f;
  f.id = "fs11";
  f.title = "FineServe, Figure 11: attainment on 8 to 16 GPUs";
  f.question =
      "Does FineServe keep 96.9 % on time from 8 GPUs on, where Static* begins "
      "at 80.1 % and Prism* does not get there with 16?";
  std::vector<double> gpus = {8, 10, 12, 14, 16};
  if (effort.quick) gpus = {8, 16};
  for (const Tier tier : {Tier::kPaper, Tier::kReleased}) {
    AddTier(tier, gpus, data, effort, &f);
  }
  f.provenance = {
      "steps: the authors' profile; lengths: ShareGPT first turns; SLO scale "
      "20; nodes of 8 GPUs",
      "ours: four copies of each one-GPU variant of Table 3, one replica each, "
      "equal rates, by tier where its FineServe keeps 96.9 % on 8 GPUs (in the "
      "released tier beyond that F_M of 70B fits no GPU); the paper's larger "
      "models span GPUs, which the simulator does not share",
      absl::StrCat("co-tenant slowdown: ", Slowdowns()[0].source)};
  f.because =
      "in the released tier the rate is bound by what F_M of 70B asks for, so "
      "low that Static* keeps everything on time; the paper tier is as printed";
  return f;
}

}  // namespace fineserve::bench
