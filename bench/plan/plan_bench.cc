// Compares placement policies with the exact optimum, and measures their time:
// see kQuestion.

#include <stdio.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/compared_systems/baselines.h"
#include "bench/report/report.h"
#include "daemon/scheduling/global/exact/branch_and_bound.h"
#include "daemon/scheduling/global/make_plan.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "daemon/scheduling/global/testdata/random_snapshot.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How far is each placement policy from the best plan, and how long does it take?

Gap: instances of up to 8 models on up to 4 GPUs, whose best plan branch and
bound proves: 1 - goodput / best, where a policy hosts as many models; the
share of instances in which it hosts fewer is shown apart. Goodput is tokens/s
by memory (daemon/scheduling/global/score/goodput.h); nothing is served here. Models have the
profiles that FineServe's authors measured; half of the instances have random
rates, half those of the Arena trace, with its mean lengths. What cannot be
proven within the steps is drawn again, and counted.

Time: fineserve-opt on large clusters of nodes of 8 GPUs, and one changed rate
in an existing plan. CPU seconds of this process, which has one thread.)";

constexpr uint64_t kSteps = 60'000;
constexpr size_t kMostReplicas = 12;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the rates and mean lengths of a trace's models.
std::vector<plan::ModelLoad> LoadsOf(const workload::Trace& trace) {
  std::vector<plan::ModelLoad> loads(trace.models.size());
  for (const workload::Arrival& a : trace.arrivals) {
    plan::ModelLoad& load = loads[a.model];
    ++load.rate;
    load.prompt_tokens += a.lengths.input;
    load.output_tokens += a.lengths.output;
  }
  for (plan::ModelLoad& load : loads) {
    load.prompt_tokens /= load.rate;
    load.output_tokens /= load.rate;
  }
  return loads;
}

struct Data {
  std::vector<plan::Profile> profiles;
  std::vector<plan::ModelLoad> loads;
};

Data ReadData(const std::string& folder) {
  const auto profiles =
      plan::ReadApexProfiles(folder + "/calibration_fineserve_apex_profile.csv",
                             folder + "/calibration_models.csv");
  const auto trace =
      workload::ReadTrace(folder + "/arena27_prism_vtc_600s.csv.gz");
  for (const absl::Status& status : {profiles.status(), trace.status()}) {
    if (!status.ok()) {
      Die(absl::StrCat("plan: ", std::string(status.message()),
                       "; set the folder with --data"));
    }
  }
  return {*profiles, LoadsOf(*trace)};
}

plan::Snapshot SmallInstance(const Data& data, uint64_t seed) {
  std::mt19937_64 random(seed);
  plan::RandomKind kind;
  kind.models = 3 + random() % 6;
  kind.gpus = 2 + random() % 3;
  kind.weights = 0.3 + 0.1 * static_cast<double>(random() % 6);
  kind.pressure = 0.25 * static_cast<double>(2 + random() % 9);
  kind.mixed_gpus = random() % 2 == 0;
  kind.one_replica = random() % 2 == 0;
  if (seed % 2 == 0) kind.loads = data.loads;
  return plan::RandomSnapshot(data.profiles, kind, seed);
}

struct Gaps {
  std::vector<double> relative;  // where as many models are hosted as can be
  double fewer = 0;              // instances with fewer
};

// Returns the worth of each policy's placement by name. Sets `ours` to
// fineserve-opt's placement.
std::map<std::string, plan::Worth> PlaceAll(const plan::Problem& problem,
                                            plan::Assignment* ours) {
  std::map<std::string, plan::Worth> worths;
  for (const std::string& name : PlacementNames()) {
    const auto policy = MakePlacement(name);
    const plan::Assignment a = (*policy)->Place(problem, nullptr);
    worths[name] = plan::WorthOf(a, (*policy)->about().sharing);
    if (name == "fineserve-opt") *ours = a;
  }
  return worths;
}

void CompareWithBest(const Data& data, uint64_t instances, uint64_t first_seed,
                     Report* report) {
  std::map<std::string, Gaps> gaps;
  double unproven = 0, below_fineserve = 0, proven = 0;
  for (uint64_t seed = first_seed; proven < static_cast<double>(instances);
       ++seed) {
    const auto problem =
        plan::MakeProblem(SmallInstance(data, seed), plan::ProblemOptions());
    if (!problem.ok()) Die(problem.status().ToString());
    if (problem->replicas.size() > kMostReplicas) continue;
    plan::Assignment ours(*problem);
    const auto worths = PlaceAll(*problem, &ours);
    below_fineserve +=
        plan::Better(worths.at("fineserve"), worths.at("fineserve-opt"));
    const plan::Optimum best = plan::FindOptimum(*problem, ours, kSteps);
    if (!best.proven) {
      ++unproven;
      continue;
    }
    ++proven;
    for (const auto& [name, worth] : worths) {
      if (worth.hosted < best.worth.hosted) {
        ++gaps[name].fewer;
      } else {
        gaps[name].relative.push_back(
            100 * std::max(0.0, 1 - worth.goodput / best.worth.goodput));
      }
    }
  }
  report->Figure("instances, best plan proven", proven);
  report->Figure("instances, not proven and drawn again", unproven);
  for (const std::string& name : PlacementNames()) {
    const Gaps& g = gaps[name];
    report->Figure(name + ": gap, median (%)",
                   workload::Quantile(g.relative, 0.5));
    report->Figure(name + ": gap, p99 (%)",
                   workload::Quantile(g.relative, 0.99));
    report->Figure(name + ": hosts fewer models than possible (% of instances)",
                   100 * g.fewer / proven);
  }
  const Gaps& ours = gaps["fineserve-opt"];
  report->Claim("fineserve-opt: median gap (%)",
                workload::Quantile(ours.relative, 0.5), 1, Compare::kAtMost);
  report->Claim("fineserve-opt: p99 gap (%)",
                workload::Quantile(ours.relative, 0.99), 3, Compare::kAtMost);
  report->Claim("fineserve-opt: hosts fewer models than possible (instances)",
                ours.fewer, 0, Compare::kAtMost);
  report->Claim("instances where fineserve is worth more than fineserve-opt",
                below_fineserve, 0, Compare::kAtMost);
}

plan::Options WithoutReasons() {
  plan::Options options;
  options.reasons = false;
  options.priced_gpus = 0;
  return options;
}

// Plans a large cluster; returns it with the plan's placement.
plan::Snapshot TimeLarge(const Data& data, uint32_t models, uint32_t gpus,
                         double target_s, Report* report) {
  plan::RandomKind kind;
  kind.models = models;
  kind.gpus = gpus;
  kind.gpus_of_node = 8;
  kind.one_replica = true;
  plan::Snapshot snapshot = plan::RandomSnapshot(data.profiles, kind, 1);
  const std::string of = absl::StrFormat("%d models, %d GPUs", models, gpus);
  const double begin = CpuSeconds();
  const auto made = plan::MakePlan(snapshot, WithoutReasons());
  const double seconds = CpuSeconds() - begin;
  if (!made.ok()) Die(made.status().ToString());
  report->Figure(of + ": hosted models", made->worth.hosted);
  report->Figure(of + ": gap to the bound (%)", 100 * made->gap.relative);
  report->Claim(of + ": a plan (CPU s)", seconds, target_s, Compare::kAtMost);
  for (const plan::PlannedReplica& r : made->replicas) {
    if (!r.gpus.empty()) snapshot.current.push_back({r.model, r.gpus});
  }
  return snapshot;
}

// Returns the same cluster with places that may rest: contexts as on an H100
// (bench/results), processes within the 4.3 to 6.7 GiB of CRIU's images of
// vLLM, and a TiB for each node.
plan::Snapshot WithHosts(plan::Snapshot snapshot) {
  for (plan::ModelDemand& m : snapshot.models) {
    m.context_bytes = 524.0 * (1 << 20);
    m.process_bytes = 6 * plan::kGib;
    m.may_rest = m.tp == 1;
  }
  std::set<std::string> nodes;
  for (const plan::Gpu& gpu : snapshot.gpus) nodes.insert(gpu.node);
  for (const std::string& name : nodes) {
    snapshot.nodes.push_back({name, 1024 * plan::kGib});
  }
  return snapshot;
}

// Doubles one model's rate, and plans again.
void TimeReplanning(const std::string& title, plan::Snapshot snapshot,
                    Report* report) {
  constexpr size_t kChanges = 20;
  std::vector<double> times;
  size_t resting = 0;
  for (size_t i = 0; i < kChanges; ++i) {
    plan::ModelDemand& changed =
        snapshot.models[i * snapshot.models.size() / kChanges];
    changed.rate *= 2;
    const double begin = CpuSeconds();
    const auto made = plan::Replan(snapshot, {changed.name}, WithoutReasons());
    times.push_back(1e3 * (CpuSeconds() - begin));
    if (!made.ok()) Die(made.status().ToString());
    changed.rate /= 2;
    resting = made->resting.size();
  }
  if (!snapshot.nodes.empty()) {
    report->Figure(title + ", places", static_cast<double>(resting));
  }
  report->Figure(title + ", median (CPU ms)", workload::Quantile(times, 0.5));
  report->Claim(title + ", the longest (CPU ms)", workload::Quantile(times, 1),
                50, Compare::kAtMost);
}

About TheBench() {
  return {
      "plan",
      kQuestion,
      {{"--data", "DIR", "../shared/data", "folder of the measurements"},
       {"--instances", "N", "500", "with a proven best plan"},
       {"--seed", "N", "1", "of the first instance; the next one has the next"},
       {"--largest", "MODELS", "10000",
        "models of the largest cluster, on 4,096 GPUs; 0: leave it out",
        true}}};
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const Data data = ReadData(arguments.Text("--data"));
  Report report("plan");
  const plan::Snapshot standing = TimeLarge(data, 1000, 256, 2, &report);
  TimeReplanning("replanning one change", standing, &report);
  TimeReplanning("the same, and what rests", WithHosts(standing), &report);
  if (const uint64_t models = arguments.Count("--largest"); models > 0) {
    TimeLarge(data, static_cast<uint32_t>(models), 4096, 60, &report);
  }
  CompareWithBest(data, arguments.Count("--instances"),
                  arguments.Count("--seed"), &report);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
