// Prism, Figure 12: the GPUs that 58 models need.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/prism/prism_scene.h"
#include "bench/paper/sweep.h"

namespace fineserve::bench {
namespace {

constexpr double kPrismGpus = 16, kMuxServeGpus = 32;  // for 99 %
constexpr double kAlmostAll = 99;                      // %
constexpr double kSloScale12 = 8;

Scene FiftyEight(const Data& data, double gpus, double slo_scale) {
  PrismSetting setting;
  setting.models = 58;
  setting.gpus = static_cast<uint32_t>(gpus);
  setting.rate_scale = 16;
  setting.slo_scale = slo_scale;
  return PrismScene(data, setting);
}

// Makes a table of the fewest GPUs, by bisection, with which 99 % are on time
// at each SLO, for one seed.
Table NeededBySlo(const Data& data, const Effort& effort) {
  Table table{"GPUs for 99 % by SLO scale, one seed", {"system"}, {}};
  std::vector<double> slos = {5, 8, 12, 20, 30};
  if (effort.quick) slos = {5, 20};
  for (const double slo : slos) table.header.push_back(absl::StrCat(slo));
  for (const System& s : {OursEvicting(), PrismEvicting(), MuxServePlus()}) {
    std::vector<std::string> row = {s.name};
    for (const double slo : slos) {
      uint32_t low = 6, most = 32, high = most + 1;
      while (low < high) {
        const uint32_t n = std::min(most, (low + high) / 2);
        const Measured m = ServeOnce(s, FiftyEight(data, n, slo), 1);
        if (100 * m.all.attainment >= kAlmostAll) {
          high = n;
        } else {
          low = n + 1;
        }
      }
      row.push_back(low > most ? "32+" : absl::StrCat(low));
    }
    table.rows.push_back(row);
  }
  return table;
}

// Returns the smallest number of GPUs in `x` from which on the mean attainment
// `y` is at least 99 %; 0 if there is none.
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
  std::vector<double> gpus = {8, 10, 12, 16, 24, 32};
  if (effort.quick) gpus = {8, 10, 12, 16};
  const Swept on_time =
      Sweep({"TTFT attainment, rate scale 16, SLO scale 8",
             "GPUs",
             "%",
             gpus,
             {},
             {}},
            PrismSystems(), [&](const System& s, double n) {
              return Serve(s, FiftyEight(data, n, kSloScale12), effort.seeds)
                  .Attainment();
            });
  Table table{"GPUs for 99 % on time (0: not with 32)", {"system", "GPUs"}, {}};
  std::vector<double> needed;
  for (const Curve& curve : on_time.panel.curves) {
    needed.push_back(FirstGood(curve.y, gpus));
    table.rows.push_back({curve.name, absl::StrCat(needed.back())});
  }
  f.panels = {on_time.panel};
  f.tables = {table, NeededBySlo(data, effort)};
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
  Comparison c = NotBehind("ours", "Prism, least over GPUs",
                           LeastDifference(on_time.of[0], on_time.of[1]));
  c.counts = false;
  f.comparisons.push_back(c);
  f.provenance = PrismProvenance();
  f.provenance.push_back(
      "ours: 58 models of 8B from 27 streams; rate scale 16; the paper's are "
      "43 of 1B to 3B, 8 of 4B to 8B, 3 to 30B and 4 to 70B");
  f.because =
      "Prism needs fewer GPUs than printed (its models reach 70B, these are "
      "8B and 728 GB in all), and MuxServe++'s placement leaves the busiest "
      "models together "
      "however many GPUs there are";
  return f;
}

}  // namespace fineserve::bench
