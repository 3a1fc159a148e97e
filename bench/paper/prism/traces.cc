// Compares evictions on three traces: ours, every other policy that chooses who
// leaves, and one that knows each model's next request.

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/prism/prism_scene.h"
#include "bench/paper/sweep.h"
#include "bench/report/report.h"
#include "tools/lab/sim/bound/world_bound.h"
#include "tools/lab/workload/arrivals.h"

namespace fineserve::bench {
namespace {

constexpr double kArenaRate = 4;  // times the trace's

struct TraceCase {
  std::string name;
  Scene scene;
  double gpus;
};

// Each seed is a window of the trace as long as Arena's, which begins `later_s`
// after the one before.
using TraceLoad = std::function<workload::Trace(uint64_t seed)>;
TraceLoad Windows(const workload::Trace& trace, double seconds,
                  double later_s) {
  return [trace, seconds, later_s](uint64_t seed) {
    return workload::Window(trace, later_s * static_cast<double>(seed - 1),
                            seconds);
  };
}

std::vector<TraceCase> TraceCases(const Data& data) {
  std::vector<TraceCase> cases;
  const auto add = [&](const char* name, const workload::Trace& trace,
                       const PrismSetting& setting) -> Scene& {
    cases.push_back({name, SceneOfTrace(data, trace, setting),
                     static_cast<double>(setting.gpus)});
    return cases.back().scene;
  };
  PrismSetting arena;
  arena.rate_scale = kArenaRate;
  add("arena27 at 4 times its rate, 27 models, 2 GPUs", data.arena, arena);
  arena.other_slo_scale = 40;
  add("the same, SLO scales 8 and 40 in turn", data.arena, arena);
  const double seconds = data.arena.seconds();
  PrismSetting servegen;
  servegen.gpus = 1;
  servegen.gpu_bytes = 40e9;
  servegen.longest_tokens = 8192;
  add("ServeGen, 4 models, 1 GPU of 40 GB", data.servegen, servegen).load =
      Windows(data.servegen, seconds, seconds);
  PrismSetting azure;
  azure.gpus = 3;
  azure.longest_tokens = 8192;
  const TraceLoad of_azure = Windows(data.azure, seconds, seconds / 2);
  const auto load = [arena = data.arena, of_azure](uint64_t seed) {
    return workload::Beside(of_azure(seed),
                            workload::Scale(arena, kArenaRate, seed));
  };
  add("Azure beside that of arena27, 29 models, 3 GPUs", load(1), azure).load =
      load;
  return cases;
}

// Returns all compared systems: ours first, the clairvoyant one last.
std::vector<System> EvictingSystems() {
  System fixed = Ours();
  fixed.name = "static";
  return {OursEvicting(), LongestIdleLeaves(), PrismEvicting(), Qlm(),
          MuxServePlus(), Partitioned(),       fixed,           Clairvoyant()};
}

// Returns an upper bound, for any policy, on the percentage of requests that
// would be on time if memory cost nothing.
double FreeMemoryBound(const Scene& scene, uint64_t seed) {
  const sim::World world = WorldOf(OursEvicting(), scene);
  const workload::Trace trace = scene.load(seed);
  const auto model_of = sim::ModelsOf(world, trace);
  if (!model_of.ok()) Die(model_of.status().ToString());
  return 100 * static_cast<double>(ClairvoyantBound(world, trace, *model_of)) /
         static_cast<double>(trace.arrivals.size());
}

std::string Rounded(const std::vector<double>& values) {
  return absl::StrFormat("%.0f", MeanOf(values).mean);
}

Table TableOf(const TraceCase& at, const std::vector<System>& systems,
              const std::vector<Runs>& runs) {
  Table table{
      at.name,
      {"system", "on time (%)", "behind the clairvoyant (points)", "evictions",
       "activations", "soon after one", "GPU seconds for 1,000 on time"},
      {}};
  const Values best = runs.back().Attainment();
  for (size_t i = 0; i < systems.size(); ++i) {
    const Values seconds = runs[i].Values([&](const Measured& m) {
      return 1000 * at.gpus * m.seconds /
             (m.all.attainment * static_cast<double>(m.all.requests));
    });
    table.rows.push_back(
        {systems[i].name, Text(MeanOf(runs[i].Attainment())),
         Text(DifferenceOf(best, runs[i].Attainment())),
         Rounded(runs[i].Values([](const auto& m) { return m.evictions; })),
         Rounded(runs[i].Values([](const auto& m) { return m.activations; })),
         Rounded(runs[i].Values([](const auto& m) { return m.thrashes; })),
         Rounded(seconds)});
  }
  table.rows.push_back({"bound without limits of memory",
                        absl::StrFormat("%.2f", FreeMemoryBound(at.scene, 1))});
  table.rows.back().resize(table.header.size());
  return table;
}

void CompareWith(const TraceCase& at, const std::vector<System>& systems,
                 const std::vector<Runs>& runs, Figure* f) {
  const Values ours = runs[0].Attainment();
  for (size_t i = 1; i < systems.size(); ++i) {
    const bool is_bound = i + 1 == systems.size();
    Comparison c = NotBehind(systems[0].name, systems[i].name,
                             DifferenceOf(ours, runs[i].Attainment()));
    c.what = absl::StrCat(at.name, ": ", c.what);
    c.counts = !is_bound;
    f->comparisons.push_back(c);
  }
}

}  // namespace

Figure PrismTraces(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "prism-traces";
  f.title = "Evictions on three traces, by who leaves";
  f.question =
      "How much do engines that leave keep on time, and how much could they if "
      "the next request of each model were known?";
  const std::vector<System> systems = EvictingSystems();
  for (const TraceCase& at : TraceCases(data)) {
    std::vector<Runs> runs;
    for (const System& s : systems) {
      runs.push_back(Serve(s, at.scene, effort.seeds));
    }
    f.tables.push_back(TableOf(at, systems, runs));
    CompareWith(at, systems, runs, &f);
  }
  f.provenance = {
      "arena27: Prism's own Arena input; ServeGen: drawn from published rates "
      "and lengths of clients, second day; Azure: code and conversations of "
      "2023; a seed is another 10 minutes of those two",
      "ours: all models are 8B, FP16 and FP8 in turn; SLO scale 8 of the TTFT "
      "alone, which most ways back (0.16 and 0.29 s) exceed",
      "static: models that do not fit have no place. The clairvoyant is a "
      "policy, not a bound: that engine leaves whose next request is the last, "
      "and engines come back ahead of theirs, on our placement"};
  f.because = "a policy is ahead of ours by more than a point";
  return f;
}

}  // namespace fineserve::bench
