// Compares policies that choose which engine leaves, on a fleet larger than its
// GPUs: see kQuestion.

#include <stdio.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/prism/prism_scene.h"
#include "bench/paper/sweep.h"
#include "bench/report/interval.h"
#include "bench/report/report.h"
#include "tools/lab/sim/fleet/run.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How many models do few GPUs serve when idle ones leave?

Prism's own trace (arena27, 600 s), one model of 8B for each of its 27, FP16 and
FP8 in turn: 325 GB of weights on GPUs of 80 GB, in virtual time, by the
scheduler, the pool and the policies that ship. "All stay" serves as many models
as fit, as a static partition does; the others put all models on the GPUs and
differ in who leaves and in how long the ways take:

  stop and start   as llama-swap: the longest idle stops; a start takes 30 s
                   (vLLM 8B with a warm compile cache: 59 s, facts of 2026-11)
  vLLM's sleep     by a controller: out 10.6 s, back 2.2 s (8B, vLLM #48337)
  lru, prism, slack   FineServe's mechanism at one link's measured rate
                   (bench/results), by [scheduler] eviction
  slack, two places   the same, each model with a process on two GPUs (524 MiB
                   of context more), of which one holds its memory

On time is a first token within 8 times that of the model's P95 prompt alone. A
refused request is not on time.)";

constexpr uint32_t kModels = 27;

About TheBench() {
  return {"eviction",
          kQuestion,
          {{"--data", "DIR", "../shared/data", "folder of the real traces"},
           {"--rate", "X", "4", "times the trace's rate"},
           {"--gpus", "N", "3", "the most GPUs; it begins with one"},
           {"--seeds", "N", "3", "runs of each case"}}};
}

// The context of a process, as measured on an H100 (bench/results), which stays
// on the GPU.
constexpr uint64_t kContextBytes = uint64_t{524} << 20;

// A way in which memory leaves and comes back.
struct Way {
  const char* name;
  absl::optional<Eviction> eviction;
  uint32_t places = 1;  // GPUs on which a model has a process
};
constexpr size_t kAllStay = 0, kStopStart = 1, kSleep = 2, kLru = 3, kPrism = 4,
                 kSlack = 5;
const Way kWays[] = {
    {"all stay", absl::nullopt},
    {"stop and start", Eviction{evict::EvictionPolicy::kLru, 30, 1}},
    {"vLLM's sleep", Eviction{evict::EvictionPolicy::kLru, 2.2, 10.6}},
    {"lru", Eviction{evict::EvictionPolicy::kLru}},
    {"prism", Eviction{evict::EvictionPolicy::kPrism}},
    {"slack", Eviction{evict::EvictionPolicy::kSlack}},
    {"slack, two places", Eviction{evict::EvictionPolicy::kSlack}, 2},
};

struct Outcomes {
  Values attained, p99_s, evictions, thrashes;
};

// Gives each model further places, on the GPUs after its first one, at the cost
// of a context each.
void Spread(uint32_t places, sim::World* world) {
  const auto gpus = static_cast<uint32_t>(world->gpus.size());
  const std::vector<sim::GpuSetup> own = world->gpus;
  for (sim::WorldModel& model : world->models) {
    if (model.replicas.empty()) continue;
    // Requests are routed by waits, not by shares of the rate.
    model.replicas[0].target_rate = 0;
    const sim::Replica home = model.replicas[0];
    for (uint32_t more = 1; more < std::min(places, gpus); ++more) {
      const uint32_t g = (home.gpu + more) % gpus;
      sim::GpuSetup& gpu = world->gpus[g];
      sim::EngineSetup engine = own[home.gpu].engines[home.model];
      engine.model = static_cast<uint32_t>(gpu.models.size());
      model.replicas.push_back({g, engine.model, 0});
      gpu.models.push_back(own[home.gpu].models[home.model]);
      gpu.engines.push_back(engine);
      gpu.eviction->gpu_bytes -= kContextBytes;
    }
    std::sort(model.replicas.begin(), model.replicas.end(),
              [](const auto& a, const auto& b) { return a.gpu < b.gpu; });
  }
}

Outcomes Serve(const Way& way, const Data& data, const PrismSetting& setting,
               uint64_t seeds) {
  Outcomes outcome;
  System system = Ours();
  system.eviction = way.eviction;
  const Scene scene = PrismScene(data, setting);
  sim::World world = WorldOf(system, scene);
  Spread(way.places, &world);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Measured m = ServeWorld(world, scene.load(seed));
    outcome.attained.push_back(100 * m.all.attainment);
    outcome.p99_s.push_back(m.all.ttft_s.p99);
    outcome.evictions.push_back(m.evictions);
    outcome.thrashes.push_back(m.thrashes);
  }
  return outcome;
}

void Tell(const std::string& name, const Outcomes& o, Report* report) {
  report->Figure(name + ": on time (%)", MeanOf(o.attained).mean);
  report->Figure(name + ": TTFT of those answered, p99 (s)",
                 MeanOf(o.p99_s).mean);
  report->Figure(name + ": evictions", MeanOf(o.evictions).mean);
  report->Figure(name + ": of them soon after an activation",
                 MeanOf(o.thrashes).mean);
}

void Claims(const std::string& gpus, const std::vector<Outcomes>& of,
            Report* report) {
  for (const size_t other : {kAllStay, kStopStart, kSleep, kLru, kPrism}) {
    report->Claim(
        absl::StrCat(gpus, ": points on time, slack over ", kWays[other].name),
        DifferenceOf(of[kSlack].attained, of[other].attained).mean, 0,
        Compare::kAtLeast);
  }
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const Data data = ReadData(arguments.Text("--data"));
  Report report("eviction");
  PrismSetting setting;
  setting.models = kModels;
  setting.rate_scale = arguments.Number("--rate");
  for (uint64_t gpus = 1; gpus <= arguments.Count("--gpus"); ++gpus) {
    setting.gpus = static_cast<uint32_t>(gpus);
    const std::string case_name = absl::StrFormat("%d GPUs", gpus);
    std::vector<Outcomes> outcomes;
    for (const Way& way : kWays) {
      outcomes.push_back(Serve(way, data, setting, arguments.Count("--seeds")));
      const std::string name = absl::StrCat(case_name, ", ", way.name);
      Tell(name, outcomes.back(), &report);
      fprintf(stderr, "%s: %s %% on time\n", name.c_str(),
              Text(MeanOf(outcomes.back().attained)).c_str());
    }
    Claims(case_name, outcomes, &report);
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
