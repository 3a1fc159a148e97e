// Prism, Figure 7: attainment by rate, SLO and GPUs.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/prism/prism_scene.h"
#include "bench/paper/sweep.h"

namespace fineserve::bench {
namespace {

constexpr double kMostAttainment = 3.3;  // times, "up to", of its abstract
constexpr double kMostRequests = 3.5;    // times, at 99 % on time
constexpr double kPrismAlmostAll = 99;   // %
constexpr double kGpusOfEighteen = 5;    // of Prism, on Arena
constexpr double kRateScale = 24;        // where rates do not vary
constexpr size_t kOurPlace = 0, kPrismPlace = 1;  // in PrismSystems

// Returns, for each seed, the last x up to which at least 99 % were on time; 0
// if there is none.
Values LastGood(const Line& values, const std::vector<double>& x) {
  Values last(values[0].size());
  for (size_t seed = 0; seed < last.size(); ++seed) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (values[i][seed] < kPrismAlmostAll) break;
      last[seed] = x[i];
    }
  }
  return last;
}

// Returns, for each seed, the first x from which on at least 99 % were on time;
// the last x plus 1 if there is none.
Values FirstGood(const Line& values, const std::vector<double>& x) {
  Values first(values[0].size());
  for (size_t seed = 0; seed < first.size(); ++seed) {
    first[seed] = x.back() + 1;
    for (size_t i = x.size(); i-- > 0 && values[i][seed] >= kPrismAlmostAll;) {
      first[seed] = x[i];
    }
  }
  return first;
}

// The load of a GPU.
struct GpuLoad {
  int models = 0;
  double rate = 0, weight_bytes = 0;
};

// Makes a table of each system's models on each GPU, their requests/s, and the
// KV that their weights leave.
Table PlacesOfModels(const Data& data, const PrismSetting& setting) {
  Table table{absl::StrCat("Models on each GPU, their requests/s and KV: ",
                           setting.models, " on ", setting.gpus),
              {"system", "GPUs"},
              {}};
  const plan::Snapshot snapshot = PrismScene(data, setting).snapshot;
  for (const System& s : PrismSystems()) {
    if (s.eviction) continue;
    std::map<std::string, GpuLoad> on;
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
    for (const auto& [gpu, group] : on) {
      absl::StrAppend(
          &text,
          absl::StrFormat("%d with %.1f/s, %.0f GB; ", group.models, group.rate,
                          (setting.gpu_bytes - group.weight_bytes) / 1e9));
    }
    table.rows.push_back({s.name, text});
  }
  return table;
}

PrismSetting AtRate(double scale) {
  PrismSetting setting;
  setting.rate_scale = scale;
  return setting;
}

PrismSetting AtSlo(double scale) {
  PrismSetting setting = AtRate(kRateScale);
  setting.slo_scale = scale;
  return setting;
}

PrismSetting EighteenOn(double gpus) {
  PrismSetting setting = AtRate(kRateScale);
  setting.models = 18;
  setting.gpus = static_cast<uint32_t>(gpus);
  return setting;
}

// Adds the comparisons of our system or of Prism with the baselines. Only
// Prism's count.
void CompareWithBaselines(size_t ours, const Swept& rate, const Swept& count,
                          Figure* f) {
  const std::string name = PrismSystems()[ours].name;
  const bool counts = ours == kPrismPlace;
  const std::vector<double>& rates = rate.panel.x;
  for (const size_t theirs : {size_t{2}, size_t{3}, size_t{4}}) {
    const std::string over =
        absl::StrCat(name, " over ", PrismSystems()[theirs].name);
    f->comparisons.push_back(
        {.what = absl::StrCat("attainment, most over rates, ", over),
         .paper = kMostAttainment,
         .ours = MostRatio(rate.of[ours], rate.of[theirs]),
         .counts = counts});
    f->comparisons.push_back({.what = absl::StrCat("rate kept at 99 %, ", over),
                              .paper = kMostRequests,
                              .ours = RatioOf(LastGood(rate.of[ours], rates),
                                              LastGood(rate.of[theirs], rates)),
                              .counts = counts});
  }
  f->comparisons.push_back(
      {.what = absl::StrCat("GPUs for 99 % of 18 models, ", name),
       .sense = Sense::kAbout,
       .paper = kGpusOfEighteen,
       .ours = MeanOf(FirstGood(count.of[ours], count.panel.x)),
       .counts = counts});
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
  std::vector<double> gpus = {2, 3, 4, 5, 6, 8};
  if (effort.quick) rates = {8, 32}, slos = {4, 16}, gpus = {2, 3, 4};
  const auto sweep = [&](const char* title, const char* x_label,
                         const std::vector<double>& x,
                         PrismSetting (*at)(double)) {
    const Swept swept =
        Sweep({title, x_label, "%", x, {}, {}}, PrismSystems(),
              [&](const System& s, double value) {
                return Serve(s, PrismScene(data, at(value)), effort.seeds)
                    .Attainment();
              });
    f.panels.push_back(swept.panel);
    return swept;
  };
  const Swept rate =
      sweep("8 models, 2 GPUs, SLO scale 8", "rate scale", rates, AtRate);
  const Swept slo =
      sweep("8 models, 2 GPUs, rate scale 24", "SLO scale", slos, AtSlo);
  const Swept count =
      sweep("18 models, rate scale 24, SLO scale 8", "GPUs", gpus, EighteenOn);
  for (const size_t ours : {kPrismPlace, kOurPlace}) {
    CompareWithBaselines(ours, rate, count, &f);
  }
  for (const auto& [over, swept] :
       {std::pair{"rates", &rate}, {"SLO scales", &slo}, {"GPUs", &count}}) {
    Comparison c = NotBehind(
        "ours", absl::StrCat("Prism, least over ", over),
        LeastDifference(swept->of[kOurPlace], swept->of[kPrismPlace]));
    c.counts = false;
    f.comparisons.push_back(c);
  }
  f.tables = {PlacesOfModels(data, AtSlo(slos[0])),
              PlacesOfModels(data, EighteenOn(gpus[2]))};
  f.provenance = PrismProvenance();
  f.provenance.push_back(
      "ours: SLO scale 8 over rates, rate scale 24 over SLOs and GPUs");
  f.because =
      "8 models of 8B leave 60 of 160 GB for KV, so that S-Partition keeps up "
      "until the GPUs' time is short, which no policy mends; their own KV "
      "is short earlier";
  return f;
}

}  // namespace fineserve::bench
