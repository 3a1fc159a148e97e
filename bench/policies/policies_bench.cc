// Compares scheduling policies on simulated engines; kQuestion says how.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/report/report.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/sim/fleet/world.h"
#include "tools/lab/workload/arrivals.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] = R"(Which policy keeps more first tokens on time?

Compares Algorithm 2, with and without its floor, with Moore-Hodgson (Prism) and
FCFS, in virtual time: the daemon's own scheduler with simulated engines. Two
models, 8B in FP16 and in FP8, share one GPU; real prompt and answer lengths,
Poisson arrivals, three seeds, one SLO for both. Attainment counts all requests:
drops are misses.

Load is relative to the rate at which FCFS still keeps 99 % on time. A step
takes 8 ms + 0.04 ms a prompt token + 0.06 ms a sequence (the authors' profile,
llama-3-8b QoQ: 40 us a token), twice that while both models work. The
scheduler knows the model's own profile, so that kappa has to learn only the
neighbour's effect. The bench compares policies on that engine; it does not
predict a GPU.)";

constexpr double kSeconds = 120;
constexpr int kSeeds = 3;
constexpr double kLoads[] = {0.8, 1.0, 1.25, 1.5, 2.0};
constexpr sched::Micros kSloTtft = 1'000'000;

struct Scheme {
  const char* name;
  const char* policy;
  double floor_share;
};
constexpr Scheme kSchemes[] = {{"fineserve", "fineserve", 0.1},
                               {"fineserve, no floor", "fineserve", 0},
                               {"moore-hodgson", "moore-hodgson", 0},
                               {"fcfs", "fcfs", 0}};

struct Setting {
  std::vector<workload::Lengths> lengths;
  uint64_t kv_tokens;
};

// Two engines that share a GPU by time slices, each with separate KV.
sim::World WorldOf(const Setting& setting, const Scheme& scheme) {
  const sched::Profile profile{8000, 40, 60};
  sim::World world;
  sim::GpuSetup gpu;
  gpu.policy = scheme.policy;
  gpu.floor_share = scheme.floor_share;
  for (const char* name : {"fp16", "fp8"}) {
    const auto place = static_cast<uint32_t>(gpu.models.size());
    gpu.models.push_back({name, kSloTtft, 0, 2048, 256, profile});
    sim::EngineSetup engine;
    engine.name = name;
    engine.model = place;
    engine.limits = {2048, 256, 16};
    engine.step_time = {profile};
    engine.kv_token_bytes = 1;
    engine.longest_tokens = UINT32_MAX;  // the scheduler refuses them
    engine.own_tokens = (place + 1) * setting.kv_tokens;
    gpu.engines.push_back(engine);
    world.models.push_back({name,
                            {static_cast<double>(kSloTtft) / 1e6, 0},
                            profile,
                            {{0, place}}});
  }
  world.gpus = {gpu};
  world.gpu_names = {"GPU"};
  return world;
}

sim::RunResult RunOnce(const Setting& setting, double rate,
                       const Scheme& scheme, uint64_t seed) {
  const workload::Trace trace = workload::Poisson(
      {{"fp16", rate / 2}, {"fp8", rate / 2}}, kSeconds, setting.lengths, seed);
  auto result = sim::Run(WorldOf(setting, scheme), trace, {0, 1}, {});
  if (!result.ok()) abort();  // the world is made above
  return *std::move(result);
}

double Attainment(const sim::RunResult& result) {
  return workload::Summarize(result.outcomes, kSeconds).attainment;
}

// Finds the requests per second at which FCFS keeps 99 % on time.
double Capacity(const Setting& setting) {
  double low = 0.5, high = 200;
  for (int i = 0; i < 9; ++i) {
    const double rate = (low + high) / 2;
    const sim::RunResult r = RunOnce(setting, rate, kSchemes[3], 1);
    (Attainment(r) >= 0.99 ? low : high) = rate;
  }
  return low;
}

// Runs all seeds of one load under one scheme; returns their mean attainment.
double Measure(const Setting& setting, double load, double rate,
               const Scheme& scheme, Report* report) {
  double attainment = 0, preemptions = 0, goodput = 0;
  std::vector<workload::Outcome> all;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const sim::RunResult r = RunOnce(setting, rate, scheme, seed);
    const auto summary = workload::Summarize(r.outcomes, kSeconds);
    attainment += summary.attainment / kSeeds;
    goodput += summary.goodput / kSeeds;
    preemptions += static_cast<double>(r.gpus[0].preemptions) / kSeeds;
    all.insert(all.end(), r.outcomes.begin(), r.outcomes.end());
  }
  const std::string of = absl::StrFormat("load %.2f, %s", load, scheme.name);
  const auto deciles = workload::AttainmentByLengthDecile(all);
  report->Figure(of + ": on time (%)", 100 * attainment);
  report->Figure(of + ": longest tenth on time (%)", 100 * deciles.back());
  report->Figure(of + ": goodput (requests/s)", goodput);
  report->Figure(of + ": preemptions", preemptions);
  return 100 * attainment;
}

About TheBench() {
  return {"policies",
          kQuestion,
          {{"--data", "DIR", "../shared/data", "folder of the real lengths"},
           {"--set", "NAME", "sharegpt_firstturn",
            "or sharegpt_8k_accumulated, arxiv_summarization"},
           {"--kv", "TOKENS", "150000",
            "KV of the FP16 engine, which has enough; FP8 has twice as much"}}};
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const std::string set = arguments.Text("--set");
  const auto lengths = workload::ReadLengths(absl::StrCat(
      arguments.Text("--data"), "/lengths_", set, "_llama2tok_even.csv.gz"));
  if (!lengths.ok()) {
    fprintf(stderr, "policies: %s; set the folder with --data\n",
            std::string(lengths.status().message()).c_str());
    return 1;
  }
  const Setting setting{*lengths, arguments.Count("--kv")};
  Report report("policies");
  const double capacity = Capacity(setting);
  report.Figure(set + ", FCFS keeps 99 % at (requests/s)", capacity);
  std::map<std::string, double> best_gain;
  double worst_loss = 0;
  for (const double load : kLoads) {
    std::map<std::string, double> on_time;
    for (const Scheme& scheme : kSchemes) {
      on_time[scheme.name] =
          Measure(setting, load, load * capacity, scheme, &report);
    }
    for (const char* other : {"moore-hodgson", "fcfs"}) {
      const double gain = on_time["fineserve"] - on_time[other];
      best_gain[other] = std::max(best_gain[other], gain);
      worst_loss = std::max(worst_loss, -gain);
    }
  }
  report.Claim("most gained over FCFS (points)", best_gain["fcfs"], 20,
               Compare::kAtLeast);
  report.Claim("most gained over Moore-Hodgson (points)",
               best_gain["moore-hodgson"], 0, Compare::kAtLeast);
  report.Claim("most lost to either at any load (points)", worst_loss, 1,
               Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
