// FineServe, Figure 4: static and dynamic KV for two models on one GPU.

#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/fineserve/fineserve_scene.h"
#include "tools/lab/workload/rates.h"

namespace fineserve::bench {
namespace {

constexpr double kKvBytes = 8e9;
constexpr double kPhase_s = 60;  // T1, then T2
constexpr double kBin_s = 10;
// Requests/s of A and B.
const std::vector<std::vector<workload::Stream>>& Phases() {
  static const auto* phases = new std::vector<std::vector<workload::Stream>>{
      {{"A", 6}, {"B", 14}}, {{"A", 1}, {"B", 28}}};
  return *phases;
}

Scene SceneOf(const Data& data) {
  FineServeSetting setting;
  setting.models = {TableFourModels()[0], TableFourModels()[1]};
  setting.gpus = 1;
  setting.rate = 20;
  Scene scene = FineServeScene(data, setting);
  double memory = kKvBytes;
  for (plan::ModelDemand& m : scene.snapshot.models) {
    const plan::Profile& p = *plan::FindProfile(data.profiles, m);
    memory += p.weight_bytes + p.activation_bytes;
  }
  scene.snapshot.gpus[0].memory_bytes = memory;
  const workload::Slots slots{kPhase_s, Phases()};
  scene.load = [slots, lengths = data.sharegpt](uint64_t seed) {
    return workload::PoissonBySlots(
        slots, kPhase_s * static_cast<double>(slots.streams.size()), lengths,
        seed);
  };
  return scene;
}

// Returns the requests per second that are on time, by the bin in which they
// began.
std::vector<double> OnTimeBySecond(const Measured& m) {
  std::vector<double> bins(static_cast<size_t>(2 * kPhase_s / kBin_s));
  for (const workload::Outcome& o : m.outcomes) {
    const auto bin = static_cast<size_t>(o.begin_s / kBin_s);
    if (o.attained() && bin < bins.size()) bins[bin] += 1 / kBin_s;
  }
  return bins;
}

// Returns the requests without a first token at the end of each bin.
std::vector<double> Waiting(const Measured& m) {
  std::vector<double> bins(static_cast<size_t>(2 * kPhase_s / kBin_s));
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    const double at = kBin_s * static_cast<double>(bin + 1);
    for (const workload::Outcome& o : m.outcomes) {
      const double starts =
          o.end == workload::End::kDone ? o.first_token_s : o.end_s;
      if (o.begin_s <= at && starts > at) ++bins[bin];
    }
  }
  return bins;
}

template <typename ByTime>
Curve OverTime(const std::string& name, const Runs& runs, ByTime by_time) {
  std::vector<std::vector<double>> of_bin;
  for (const Measured& m : runs.of_seed) {
    const std::vector<double> bins = by_time(m);
    of_bin.resize(bins.size());
    for (size_t b = 0; b < bins.size(); ++b) of_bin[b].push_back(bins[b]);
  }
  Curve curve{name, {}};
  for (const auto& values : of_bin) curve.y.push_back(MeanOf(values));
  return curve;
}

}  // namespace

Figure FineServeFigure4(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "fs4";
  f.title =
      "FineServe, Figure 4: KV in fixed parts and in a pool, two models on one "
      "GPU";
  f.question =
      "Does a pool keep queues shorter and more requests on time than fixed "
      "parts, when A's load falls and B's rises?";
  const Scene scene = SceneOf(data);
  const System fixed{"fixed parts, FCFS", "s-partition", plan::Tier::kPaper,
                     Parts::kEqual, Local::kFcfs};
  const System pool{"pool, FCFS", "muxserve", plan::Tier::kPaper, Parts::kPool,
                    Local::kFcfs};
  System ours = Ours();
  ours.name = "pool, ours";
  std::vector<double> x;
  for (double at = kBin_s; at <= 2 * kPhase_s; at += kBin_s) x.push_back(at);
  f.panels = {{"On time", "s", "requests/s", x, {}, {}},
              {"Waiting for a first token", "s", "requests", x, {}, {}}};
  std::vector<std::vector<double>> on_time;
  for (const System& s : {fixed, pool, ours}) {
    const Runs runs = Serve(s, scene, effort.seeds);
    f.panels[0].curves.push_back(OverTime(s.name, runs, OnTimeBySecond));
    f.panels[1].curves.push_back(OverTime(s.name, runs, Waiting));
    on_time.push_back(
        runs.Values([](const Measured& m) { return m.all.attainment; }));
  }
  const auto compare = [&](const char* what, size_t system, bool counts) {
    Comparison c;
    c.what = what;
    c.paper = 1;
    c.counts = counts;
    c.ours = RatioOf(on_time[system], on_time[0]);
    f.comparisons.push_back(c);
  };
  compare("requests on time, pool over fixed parts (more than 1)", 1, true);
  compare("requests on time, ours over fixed parts (more than 1)", 2, false);
  f.provenance = {
      "steps: the authors' profile; lengths: ShareGPT first turns; SLO scale "
      "20; the paper's text prints no numbers, so any gain counts",
      "ours: 8 GB of KV (80 GB hold more than 256 sequences need, so that "
      "nothing would bind), A 6 and B 14 requests/s for 60 s, then 1 and 28"};
  f.because = "a pool gives only as much as fixed parts here";
  return f;
}

}  // namespace fineserve::bench
