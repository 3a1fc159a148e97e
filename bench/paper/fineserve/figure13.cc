// FineServe, Figure 13: what the local scheduler alone gives.

#include "absl/strings/str_format.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/fineserve/fineserve_scene.h"
#include "bench/paper/sweep.h"

namespace fineserve::bench {
namespace {

using plan::Tier;

constexpr double kMostOverFcfs = 45.34, kMostOverPrism = 8.87;  // points
constexpr double kRateScales[] = {1.66, 2.0};

// Leaves out the released batch at the SLO, since it is one at SLOs this tight.
System Alone(System of, Local local) {
  of.slo_batch = false;
  of.placement = "dedicated";
  of.parts = Parts::kEqual;
  of.local = local;
  return of;
}

std::vector<System> LocalSystems() {
  System paper_fcfs = StaticStarOf(Tier::kPaper);
  paper_fcfs.name = WithTier("FCFS", Tier::kPaper);
  System released_fcfs = StaticStarOf(Tier::kReleased);
  released_fcfs.name = WithTier("FCFS", Tier::kReleased);
  return {Alone(Ours(), Local::kFineServe),
          Alone(FineServeOf(Tier::kPaper), Local::kAlgorithm2),
          Alone(PrismStarOf(Tier::kPaper), Local::kMooreHodgson),
          Alone(paper_fcfs, Local::kFcfs),
          Alone(FineServeOf(Tier::kReleased), Local::kReleasedAlgorithm2),
          Alone(PrismStarOf(Tier::kReleased), Local::kReleasedPrism),
          Alone(released_fcfs, Local::kReleasedFcfs)};
}
constexpr size_t kOurs = 0, kPaper = 1, kReleased = 4;  // then Prism*, FCFS

Scene SceneAt(const Data& data, double rate, double slo_s, double seconds) {
  FineServeSetting setting;
  setting.models = {TableFourModels()[0]};
  setting.gpus = 1;
  setting.rate = rate;
  setting.seconds = seconds;
  Scene scene = FineServeScene(data, setting);
  if (slo_s > 0) scene.snapshot.models[0].slo_ttft_s = slo_s;
  return scene;
}

// Returns the requests/s that the tier's FCFS serves under far too high a load.
double Saturation(const Data& data, size_t tier, double seconds) {
  const Measured m = ServeOnce(LocalSystems()[tier + 2],
                               SceneAt(data, 100, 0, seconds / 2), 1);
  return m.all.requests_per_second;
}

double BaseSlo(const Data& data, size_t tier, double rate, double seconds) {
  const Measured m =
      ServeOnce(LocalSystems()[tier + 2], SceneAt(data, rate, 0, seconds), 1);
  return m.all.ttft_s.p90;
}

const char* TierOf(size_t tier) {
  return tier == kPaper ? "paper" : "released";
}

// `of`: by system, over all points.
void CompareAll(const std::vector<Line>& of, size_t tier, const std::string& at,
                bool counts, Figure* f) {
  const auto add = [&](const char* what, size_t ours, size_t theirs,
                       double paper, bool its) {
    Comparison c;
    c.what = absl::StrFormat("%s (%s), most points%s", what, TierOf(tier), at);
    c.paper = paper;
    c.even = 0;
    c.ours = MostDifference(of[ours], of[theirs]);
    c.counts = counts && its;
    f->comparisons.push_back(c);
  };
  add("FineServe over FCFS", tier, tier + 2, kMostOverFcfs, true);
  add("FineServe over Prism*", tier, tier + 1, kMostOverPrism, true);
  add("ours over FCFS", kOurs, tier + 2, kMostOverFcfs, false);
  add("ours over Prism*", kOurs, tier + 1, kMostOverPrism, false);
}

// Adds one tier at `load` times the rate that its FCFS can serve; the first
// also with its plots. Returns rate and SLO at scale 1, as text.
std::string AddTier(const Data& data, const Effort& effort, size_t tier,
                    double load, bool first, Figure* f) {
  const std::vector<double> slos = effort.quick
                                       ? std::vector<double>{1, 3}
                                       : std::vector<double>{1, 1.5, 2, 2.5, 3};
  const double base =
      load * Saturation(data, tier, effort.seconds) / kRateScales[0];
  const double slo = BaseSlo(data, tier, base, effort.seconds);
  const std::vector<System> systems = LocalSystems();
  std::vector<Line> of(systems.size());
  for (const double rate_scale : kRateScales) {
    const Swept swept = Sweep(
        {absl::StrFormat("Rate scale %.2f (%s)", rate_scale, TierOf(tier)),
         "SLO scale",
         "%",
         slos,
         {},
         {}},
        systems, [&](const System& s, double scale) {
          const Scene scene =
              SceneAt(data, rate_scale * base, scale * slo, effort.seconds);
          return Serve(s, scene, effort.seeds).Attainment();
        });
    for (size_t s = 0; s < of.size(); ++s) {
      of[s].insert(of[s].end(), swept.of[s].begin(), swept.of[s].end());
    }
    if (first) f->panels.push_back(swept.panel);
  }
  CompareAll(of, tier,
             first ? "" : absl::StrFormat(" at %.1f times the rates", load),
             first, f);
  return absl::StrFormat("%s x %.1f: %.3g requests/s, %.0f ms; ", TierOf(tier),
                         load, base, 1e3 * slo);
}

}  // namespace

Figure FineServeFigure13(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "fs13";
  f.title = "FineServe, Figure 13: attainment by the local scheduler alone";
  f.question =
      "8B FP16 alone on a GPU: how many points more does Algorithm 2 keep on "
      "time than Prism* and FCFS?";
  std::string verdicts;
  std::vector<double> loads = {1, 0.9, 1.2};  // scale 1.66 over saturation
  if (effort.quick) loads = {1};
  for (const double load : loads) {
    for (const size_t tier : {kPaper, kReleased}) {
      verdicts += AddTier(data, effort, tier, load, load == loads[0], &f);
    }
  }
  f.provenance = {
      "steps: the authors' profile; lengths: ShareGPT first turns",
      "ours: at rate scale 1.66 the engine is asked for what the tier's FCFS "
      "can serve; the SLO is that FCFS's P90 TTFT at rate scale 1 (the paper "
      "does not say at which rate it was taken)",
      "rate scale 1 and its SLO, by tier and load: " + verdicts};
  f.because =
      "prompts of ShareGPT's first turns are far shorter than a step's 2,048 "
      "tokens, so that to count a batch as one or in turn sheds nearly the "
      "same requests; over FCFS the gain is larger than printed";
  return f;
}

}  // namespace fineserve::bench
