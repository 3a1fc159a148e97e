// Prism, Figure 7: attainment by rate, SLO and GPUs.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/figures.h"
#include "bench/paper/prism_scene.h"
#include "bench/paper/serve.h"

namespace fineserve::bench {
namespace {

constexpr double kMostAttainment = 3.3;  // times, "up to", of its abstract
constexpr double kMostRequests = 3.5;    // times, at 99 % on time
constexpr double kPrismAlmostAll = 99;   // %
constexpr double kGpusOfEighteen = 5;    // of Prism, on Arena
constexpr double kRateScale = 24;        // where rates do not vary

using ByX = std::vector<std::vector<double>>;  // attainment by x and seed

// A panel of TTFT attainment, and the values of each system.
std::vector<ByX> AddPanel(const std::string& title, const std::string& x_label,
                          const std::vector<double>& x,
                          const std::vector<PrismSetting>& settings,
                          const Data& data, const Effort& effort, Figure* f) {
  Panel panel{title, x_label, "%", x, {}, {}};
  std::vector<ByX> all;
  for (const System& s : PrismSystems()) {
    Curve curve{s.name, {}};
    all.emplace_back();
    for (const PrismSetting& setting : settings) {
      all.back().push_back(
          Serve(s, PrismScene(data, setting), effort.seeds).Attainment());
      curve.y.push_back(MeanOf(all.back().back()));
    }
    panel.curves.push_back(curve);
  }
  f->panels.push_back(panel);
  return all;
}

Interval MostRatio(const ByX& ours, const ByX& theirs) {
  Interval most;
  for (size_t i = 0; i < ours.size(); ++i) {
    const Interval ratio = RatioOf(ours[i], theirs[i]);
    if (ratio.mean > most.mean) most = ratio;
  }
  return most;
}

// By seed, the last x up to which at least 99 % were on time; 0: none.
std::vector<double> LastGood(const ByX& values, const std::vector<double>& x) {
  std::vector<double> last(values[0].size());
  for (size_t seed = 0; seed < last.size(); ++seed) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (values[i][seed] < kPrismAlmostAll) break;
      last[seed] = x[i];
    }
  }
  return last;
}

// By seed, the first x from which on at least 99 % were on time; beyond the
// last x: one more than that.
std::vector<double> FirstGood(const ByX& values, const std::vector<double>& x) {
  std::vector<double> first(values[0].size());
  for (size_t seed = 0; seed < first.size(); ++seed) {
    first[seed] = x.back() + 1;
    for (size_t i = x.size(); i-- > 0 && values[i][seed] >= kPrismAlmostAll;) {
      first[seed] = x[i];
    }
  }
  return first;
}

// What lies on a GPU.
struct Lies {
  int models = 0;
  double rate = 0, weight_bytes = 0;
};

// How many models each system puts on each GPU, their requests/s, and what
// their weights leave for KV.
Table WhoLiesWhere(const Data& data, const PrismSetting& setting) {
  Table table{absl::StrCat("Models on each GPU, their requests/s and KV: ",
                           setting.models, " on ", setting.gpus),
              {"system", "GPUs"},
              {}};
  const plan::Snapshot snapshot = PrismScene(data, setting).snapshot;
  for (const System& s : PrismSystems()) {
    std::map<std::string, Lies> on;
    const Placement placement = PlaceBy(s, snapshot);
    for (const plan::ModelDemand& m : snapshot.models) {
      const auto place = placement.gpus.find(m.name);
      if (place == placement.gpus.end()) continue;
      for (const std::string& gpu : place->second) {
        ++on[gpu].models;
        on[gpu].rate += m.rate;
        on[gpu].weight_bytes +=
            plan::FindProfile(snapshot.profiles, m)->weight_bytes;
      }
    }
    std::string text;
    for (const auto& [gpu, lies] : on) {
      absl::StrAppend(
          &text,
          absl::StrFormat("%d with %.1f/s, %.0f GB; ", lies.models, lies.rate,
                          (setting.gpu_bytes - lies.weight_bytes) / 1e9));
    }
    table.rows.push_back({s.name, text});
  }
  return table;
}

Comparison Compared(const std::string& what, Sense sense, double paper,
                    const Interval& ours, bool counts) {
  Comparison c;
  c.what = what;
  c.sense = sense;
  c.paper = paper;
  c.ours = ours;
  c.counts = counts;
  return c;
}

}  // namespace

Figure PrismFigure7(const Data& data, const Effort& full) {
  Effort effort = full;
  effort.seeds = std::min(effort.seeds, 3u);  // these runs are long
  Figure f;
  f.id = "prism7";
  f.title = "Prism, Figure 7: TTFT attainment by rate, SLO scale and GPUs";
  f.question =
      "How many more requests does Prism keep on time than MuxServe++ and "
      "S-Partition, and on how few GPUs?";
  std::vector<double> rates = {1, 4, 8, 12, 16, 24, 32, 48};
  std::vector<double> slos = {4, 8, 12, 16, 24};
  std::vector<double> gpus = {3, 4, 5, 6, 7, 8};
  if (effort.quick) rates = {8, 32}, slos = {4, 16}, gpus = {4, 6, 8};
  std::vector<PrismSetting> by_rate, by_slo, by_gpus;
  for (const double x : rates) {
    by_rate.push_back({});
    by_rate.back().rate_scale = x;
  }
  for (const double x : slos) {
    by_slo.push_back({});
    by_slo.back().rate_scale = kRateScale;
    by_slo.back().slo_scale = x;
  }
  for (const double x : gpus) {
    by_gpus.push_back({});
    by_gpus.back().models = 18;
    by_gpus.back().rate_scale = kRateScale;
    by_gpus.back().gpus = static_cast<uint32_t>(x);
  }
  const auto rate = AddPanel("8 models, 2 GPUs, SLO scale 8", "rate scale",
                             rates, by_rate, data, effort, &f);
  const auto slo = AddPanel("8 models, 2 GPUs, rate scale 24", "SLO scale",
                            slos, by_slo, data, effort, &f);
  const auto count = AddPanel("18 models, rate scale 24, SLO scale 8", "GPUs",
                              gpus, by_gpus, data, effort, &f);
  constexpr size_t kOurs = 0, kPrism = 1;
  for (const size_t ours : {kPrism, kOurs}) {
    const std::string name = PrismSystems()[ours].name;
    for (const size_t theirs : {size_t{2}, size_t{3}}) {
      const std::string over =
          absl::StrCat(name, " over ", PrismSystems()[theirs].name);
      f.comparisons.push_back(
          Compared(absl::StrCat("attainment, most over rates, ", over),
                   Sense::kGain, kMostAttainment,
                   MostRatio(rate[ours], rate[theirs]), ours == kPrism));
      f.comparisons.push_back(Compared(
          absl::StrCat("rate kept at 99 %, ", over), Sense::kGain,
          kMostRequests,
          RatioOf(LastGood(rate[ours], rates), LastGood(rate[theirs], rates)),
          ours == kPrism));
    }
    f.comparisons.push_back(Compared(
        absl::StrCat("GPUs for 99 % of 18 models, ", name), Sense::kAbout,
        kGpusOfEighteen, MeanOf(FirstGood(count[ours], gpus)), ours == kPrism));
  }
  f.comparisons.push_back(
      Compared("attainment, most over rates, ours over Prism (more than 1)",
               Sense::kGain, 1, MostRatio(rate[kOurs], rate[kPrism]), false));
  for (const PrismSetting& setting :
       {by_slo[0], by_gpus[effort.quick ? 0 : 1]}) {
    f.tables.push_back(WhoLiesWhere(data, setting));
  }
  f.provenance = PrismProvenance();
  f.provenance.push_back(
      "ours: SLO scale 8 over rates, rate scale 24 over SLOs and GPUs");
  f.because =
      "nothing is evicted or moved here, which is where Prism gains; at rates "
      "beyond 24 it leads S-Partition by placement and pool alone";
  return f;
}

}  // namespace fineserve::bench
