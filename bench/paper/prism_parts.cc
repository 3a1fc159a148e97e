// Prism, Figures 8, 10 and 11: what each of its parts gives.

#include "absl/strings/str_cat.h"
#include "bench/paper/figures.h"
#include "bench/paper/prism_scene.h"
#include "bench/paper/serve.h"
#include "bench/paper/sweep.h"

namespace fineserve::bench {
namespace {

constexpr double kLocalGain = 40;  // points, Model2, "more than"

Values OnTimeOf(const Runs& runs, const std::string& model) {
  return runs.Values(
      [&](const Measured& m) { return 100 * m.models.at(model).attainment; });
}

}  // namespace

Figure PrismFigure8(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "prism8";
  f.title = "Prism, Figure 8: KV on demand and in fixed parts, two models";
  f.question = "Does KV on demand give two models more throughput?";
  System pool = MuxServePlus(), fixed = Partitioned();
  pool.name = "on demand, FCFS";
  fixed.name = "fixed parts, FCFS";
  std::vector<double> scales = {8, 12, 16, 20, 24};
  if (effort.quick) scales = {8, 16};
  const Swept tokens =
      Sweep({"Generated tokens", "rate scale", "tokens/s", scales, {}, {}},
            {pool, fixed}, [&](const System& s, double scale) {
              PrismSetting setting;
              setting.models = 2;
              setting.gpus = 1;
              setting.gpu_bytes = 28e9;
              setting.rate_scale = scale;
              return Serve(s, PrismScene(data, setting), effort.seeds).Tokens();
            });
  f.panels = {tokens.panel};
  f.comparisons = {{.what = "tokens/s, most over rates, on demand over fixed "
                            "parts (more than 1)",
                    .paper = 1,
                    .ours = MostRatio(tokens.of[0], tokens.of[1])}};
  f.provenance = PrismProvenance();
  f.provenance.push_back(
      "ours: a GPU of 28 GB, of which weights leave 2.3 GB for KV, so that it "
      "binds; "
      "the paper's text prints no number, so any gain counts");
  f.because = "KV does not bind, or binds both models at once";
  return f;
}

Figure PrismFigure10(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "prism10";
  f.title = "Prism, Figure 10: with and without its global scheduler";
  f.question =
      "Eight models on two GPUs: does Prism's placement keep more on time than "
      "one that only counts models?";
  System without = Prism();
  without.name = "Prism without placement (fewest models)";
  without.placement = "s-partition";
  std::vector<double> scales = {16, 24, 32, 40, 48};
  if (effort.quick) scales = {16, 32};
  const Swept on_time = Sweep(
      {"TTFT attainment, SLO scale 8", "rate scale", "%", scales, {}, {}},
      {Ours(), Prism(), without}, [&](const System& s, double scale) {
        PrismSetting setting;
        setting.rate_scale = scale;
        return Serve(s, PrismScene(data, setting), effort.seeds).Attainment();
      });
  f.panels = {on_time.panel};
  f.comparisons = {
      {.what = "points, most over rates, Prism with over without placement "
               "(more than 0)",
       .even = 0,
       .ours = MostDifference(on_time.of[1], on_time.of[2])},
      {.what = "points, most over rates, ours over Prism without placement "
               "(more than 0)",
       .even = 0,
       .ours = MostDifference(on_time.of[0], on_time.of[2]),
       .counts = false}};
  f.provenance = PrismProvenance();
  f.provenance.push_back(
      "the paper does not say what placement is without its scheduler; here "
      "the heaviest first, to the GPU with the fewest models; its text prints "
      "no number, so any gain counts");
  f.because = "counting models spreads eight equal ones as well";
  return f;
}

Figure PrismFigure11(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "prism11";
  f.title = "Prism, Figure 11: with and without its local scheduler";
  f.question =
      "Two models on one GPU, Model1 at SLO scale 8: how many points more does "
      "Model2 keep on time with Prism's admission?";
  System without = Prism(), released = Prism();
  without.name = "without (FCFS)";
  without.local = Local::kFcfs;
  released.name = "with (as FineServe released it)";
  released.local = Local::kReleasedPrism;
  System with = Prism();
  with.name = "with (Moore-Hodgson)";
  std::vector<double> slos = {2, 4, 8, 16};
  if (effort.quick) slos = {4, 8};
  const Swept on_time = Sweep(
      {"TTFT attainment of Model2", "SLO scale of Model2", "%", slos, {}, {}},
      {Ours(), with, released, without}, [&](const System& s, double slo) {
        PrismSetting setting;
        setting.models = 2;
        setting.gpus = 1;
        setting.rate_scale = 24;
        Scene scene = PrismScene(data, setting);
        scene.snapshot.models[1].slo_ttft_s *= slo / setting.slo_scale;
        return OnTimeOf(Serve(s, scene, effort.seeds), "m01");
      });
  f.panels = {on_time.panel};
  const auto compare = [&](const char* what, size_t system, bool counts) {
    f.comparisons.push_back(
        {.what = absl::StrCat("points of Model2, most over SLO scales, ", what),
         .paper = kLocalGain,
         .even = 0,
         .ours = MostDifference(on_time.of[system], on_time.of[3]),
         .counts = counts});
  };
  compare("with over without", 1, true);
  compare("as released over without", 2, false);
  compare("ours over without", 0, false);
  f.provenance = PrismProvenance();
  f.provenance.push_back(
      "ours: rate scale 24, at which one GPU of 80 GB is full");
  f.because = "FCFS keeps more on time here than Prism's paper has it";
  return f;
}

}  // namespace fineserve::bench
