// Prism, Figure 12: GPUs that 58 models need.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/paper/figures.h"
#include "bench/paper/prism_scene.h"
#include "bench/paper/serve.h"
#include "bench/paper/sweep.h"

namespace fineserve::bench {
namespace {

constexpr double kPrismGpus = 16, kMuxServeGpus = 32;  // for 99 %
constexpr double kAlmostAll = 99;                      // %

// The mean attainment of each number of GPUs in order, and the first from which
// on 99 % are on time; 0 if none.
double FirstGood(const std::vector<Interval>& y, const std::vector<double>& x) {
  double first = 0;
  for (size_t i = x.size(); i-- > 0 && y[i].mean >= kAlmostAll;) first = x[i];
  return first;
}

}  // namespace

Figure PrismFigure12(const Data& data, const Effort& full) {
  Effort effort = full;
  effort.seeds = std::min(effort.seeds, 3u);  // these runs are long
  Figure f;
  f.id = "prism12";
  f.title = "Prism, Figure 12: attainment of 58 models by the number of GPUs";
  f.question = "With how many GPUs is 99 % on time?";
  std::vector<double> gpus = {12, 14, 16, 20, 24, 32};
  if (effort.quick) gpus = {12, 16, 32};
  const Swept on_time = Sweep(
      {"TTFT attainment, rate scale 16, SLO scale 8",
       "GPUs",
       "%",
       gpus,
       {},
       {}},
      PrismSystems(), [&](const System& s, double n) {
        PrismSetting setting;
        setting.models = 58;
        setting.gpus = static_cast<uint32_t>(n);
        setting.rate_scale = 16;
        return Serve(s, PrismScene(data, setting), effort.seeds).Attainment();
      });
  Table table{"GPUs for 99 % on time (0: not with 32)", {"system", "GPUs"}, {}};
  std::vector<double> needed;
  for (const Curve& curve : on_time.panel.curves) {
    needed.push_back(FirstGood(curve.y, gpus));
    table.rows.push_back({curve.name, absl::StrCat(needed.back())});
  }
  f.panels = {on_time.panel};
  f.tables = {table};
  const auto add = [&](const char* what, double paper, size_t system,
                       bool counts) {
    Comparison c;
    c.what = what;
    c.sense = Sense::kAbout;
    c.paper = paper;
    c.ours = {needed[system], 0};
    c.counts = counts;
    f.comparisons.push_back(c);
  };
  add("GPUs for 99 %, Prism", kPrismGpus, 1, true);
  add("GPUs for 99 %, MuxServe++", kMuxServeGpus, 2, true);
  add("GPUs for 99 %, ours (Prism's number)", kPrismGpus, 0, false);
  f.provenance = PrismProvenance();
  f.provenance.push_back(
      "ours: 58 models of 8B from 27 streams; rate scale 16; the paper's are "
      "43 of 1B to 3B, 8 of 4B to 8B, 3 to 30B and 4 to 70B");
  f.because =
      "Prism needs fewer GPUs than printed (its models reach 70B, these are "
      "8B), and MuxServe++'s placement leaves the busiest models together "
      "however many GPUs there are";
  return f;
}

}  // namespace fineserve::bench
