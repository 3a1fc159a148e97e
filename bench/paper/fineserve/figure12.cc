// FineServe, Figure 12: what placement alone gives.

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

constexpr double kMostOver = 3;  // "up to 3x higher aggregated throughput"
// FineServe "sustains stable performance across all models" at rate scale 8:
// the part of the requested rate that we take for "stable".
constexpr double kStable = 0.85;

// Returns the placement of `of` with fixed parts of KV and FCFS, as in the
// figure.
System FixedFcfs(System of) {
  const bool released = of.footprint == Tier::kReleased;
  of.parts = Parts::kFootprint;
  of.local = released ? Local::kReleasedFcfs : Local::kFcfs;
  return of;
}

// Does the same, but the released slab manager shares the KV.
System SlabFcfs(System of) {
  of = FixedFcfs(of);
  of.parts = Parts::kLayers;
  of.name += ", slab manager's KV";
  return of;
}

std::vector<System> PlacementSystems() {
  return {FixedFcfs(Ours()),
          FixedFcfs(FineServeOf(Tier::kPaper)),
          FixedFcfs(PrismStarOf(Tier::kPaper)),
          FixedFcfs(FineServeOf(Tier::kReleased)),
          FixedFcfs(PrismStarOf(Tier::kReleased)),
          SlabFcfs(FineServeOf(Tier::kReleased)),
          SlabFcfs(PrismStarOf(Tier::kReleased))};
}

FineServeSetting SettingAt(double rate, const Effort& effort) {
  FineServeSetting setting;
  setting.models = TableFourModels();
  setting.rate = rate;
  setting.seconds = effort.seconds;
  return setting;
}

double RateOfTopScale(const Data& data, const Effort& effort) {
  return HighestRate(0.5, 64, 8, [&](double rate) {
    const Measured m =
        ServeOnce(FixedFcfs(FineServeOf(Tier::kPaper)),
                  FineServeScene(data, SettingAt(rate, effort)), 1);
    return m.all.requests_per_second >= kStable * rate;
  });
}

}  // namespace

Figure FineServeFigure12(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "fs12";
  f.title = "FineServe, Figure 12: throughput by placement alone";
  f.question =
      "With KV in fixed parts and FCFS, how many more requests/s does "
      "FineServe's placement serve than Prism*'s at rate scale 8?";
  const double top = RateOfTopScale(data, effort);
  std::vector<double> scales = {1, 2, 4, 6, 8, 12};
  if (effort.quick) scales = {4, 8};
  const Swept requests = Sweep(
      {"Throughput", "rate scale", "requests/s", scales, {}, {}},
      PlacementSystems(), [&](const System& s, double scale) {
        const FineServeSetting at = SettingAt(top * scale / kTopScale, effort);
        return Serve(s, FineServeScene(data, at), effort.seeds).Requests();
      });
  f.panels = {requests.panel};
  const auto at_top = std::find(scales.begin(), scales.end(), kTopScale);
  const auto i = static_cast<size_t>(at_top - scales.begin());
  const auto compare = [&](const char* what, size_t ours, size_t theirs,
                           bool counts) {
    Comparison c;
    c.what = absl::StrCat("requests/s at scale 8, ", what);
    c.paper = kMostOver;
    c.counts = counts;
    c.ours = RatioOf(requests.of[ours][i], requests.of[theirs][i]);
    f.comparisons.push_back(c);
  };
  compare("FineServe over Prism* (paper)", 1, 2, true);
  compare("FineServe over Prism* (released)", 3, 4, true);
  compare("FineServe over Prism* (released, KV by the slab manager)", 5, 6,
          false);
  compare("ours over Prism* (paper)", 0, 2, false);
  compare("ours over Prism* (released, KV by the slab manager)", 0, 6, false);
  f.provenance = {
      "steps: the authors' profile; lengths: ShareGPT first turns; models and "
      "GPUs: Table 4's; requests/s until the last one is done",
      absl::StrFormat("ours: rate scale 8 is %.3g requests/s in all, the same "
                      "to each model, the most of which FineServe (paper) "
                      "serves %.0f %%, since the paper calls it stable there",
                      top, 100 * kStable),
      absl::StrCat("co-tenant slowdown: ", Slowdowns()[0].source)};
  f.because =
      "C has room beside B: 80 GB leave them 31 GB of KV. It has not where the "
      "released slab manager takes 1.8 times the weights off: then 2.2 GiB are "
      "left";
  return f;
}

}  // namespace fineserve::bench
