#include "bench/paper/compared_systems/serve.h"

#include <stdio.h>
#include <unistd.h>

#include <utility>

#include "bench/paper/compared_systems/baselines.h"
#include "bench/paper/compared_systems/engines.h"
#include "bench/report/report.h"
#include "tools/lab/sim/bound/next_request.h"

namespace fineserve::bench {
namespace {

std::string ModelNameOf(const plan::Problem& problem, uint32_t replica) {
  return problem.models[problem.replicas[replica].model].name;
}

plan::Problem ProblemOf(const System& system, const plan::Snapshot& snapshot) {
  plan::ProblemOptions options;
  options.footprint = system.footprint;
  options.co_tenant_slowdown = system.co_tenant_slowdown;
  auto problem = plan::MakeProblem(snapshot, options);
  if (!problem.ok()) Die(problem.status().ToString());
  return *std::move(problem);
}

plan::Assignment AssignmentOf(const System& system,
                              const plan::Problem& problem,
                              plan::Journal* journal) {
  const auto policy = MakePlacement(system.placement);
  if (!policy.ok()) Die(policy.status().ToString());
  return (*policy)->Place(problem, journal);
}

// If idle engines leave, GPUs are planned repeatedly, each time so many times
// larger, until all models have a place and leave a part of the memory for KV.
// Heuristic.
constexpr double kStretch = 1.25, kMostStretched = 20, kMostWeights = 0.8;

// Returns the part of all GPUs' memory that weights take.
double WeightsPart(const plan::Problem& problem) {
  double weights = 0, memory = 0;
  for (const plan::Replica& r : problem.replicas) {
    weights += r.tp * r.weight_bytes;
  }
  for (const plan::Gpu& gpu : problem.gpus) memory += gpu.Capacity();
  return weights / memory;
}

bool IsClairvoyant(const System& system) {
  return system.eviction && system.eviction->is_clairvoyant;
}

double OnTimeTokens(const std::vector<workload::Outcome>& outcomes) {
  double tokens = 0;
  for (const workload::Outcome& o : outcomes) {
    if (o.attained()) tokens += o.lengths.output - 1;
  }
  return tokens;
}

}  // namespace

Placement PlaceBy(const System& system, const plan::Snapshot& snapshot) {
  const plan::Problem problem = ProblemOf(system, snapshot);
  plan::Journal journal;
  const plan::Assignment a = AssignmentOf(system, problem, &journal);
  Placement placement;
  for (uint32_t r = 0; r < problem.replicas.size(); ++r) {
    if (!a.Hosted(r)) continue;
    for (const uint32_t gpu : a.GroupOf(r)) {
      placement.gpus[ModelNameOf(problem, r)].push_back(problem.gpus[gpu].name);
    }
  }
  for (const plan::Decision& turn : journal.decisions) {
    placement.order.push_back(ModelNameOf(problem, turn.replica));
  }
  return placement;
}

sim::World WorldOf(const System& system, const Scene& scene) {
  for (double stretch = 1;; stretch *= kStretch) {
    plan::Snapshot snapshot = scene.snapshot;
    for (plan::Gpu& gpu : snapshot.gpus) gpu.memory_bytes *= stretch;
    const plan::Problem problem = ProblemOf(system, snapshot);
    const plan::Assignment a =
        AssignmentOf(system, problem, /*journal=*/nullptr);
    const bool all_fit = a.hosted_models() == problem.models.size() &&
                         WeightsPart(problem) <= kMostWeights;
    if (!system.eviction || all_fit || stretch > kMostStretched) {
      return EnginesOf(system, scene, a);
    }
  }
}

Measured ServeOnce(const System& system, const Scene& scene, uint64_t seed) {
  return ServeWorld(WorldOf(system, scene), scene.load(seed),
                    IsClairvoyant(system));
}

Measured ServeWorld(sim::World world, const workload::Trace& trace,
                    bool is_clairvoyant) {
  const auto model_of = sim::ModelsOf(world, trace);
  if (!model_of.ok()) Die(model_of.status().ToString());
  if (is_clairvoyant) sim::TellNextRequests(trace, *model_of, &world);
  sim::RunOptions options;
  options.tells_output = false;  // the lengths of answers are unknown
  auto result = sim::Run(world, trace, *model_of, options);
  if (!result.ok()) Die(result.status().ToString());
  Measured m;
  m.all = workload::Summarize(result->outcomes, result->seconds);
  std::map<uint32_t, std::vector<workload::Outcome>> of_model;
  for (const workload::Outcome& o : result->outcomes) {
    of_model[o.model].push_back(o);
  }
  for (const auto& [model, outcomes] : of_model) {
    m.models[world.models[model].name] =
        workload::Summarize(outcomes, result->seconds);
  }
  m.on_time_tokens_per_s = OnTimeTokens(result->outcomes) / result->seconds;
  m.seconds = result->seconds;
  for (const sim::Gpu::Counters& c : result->gpus) {
    m.preemptions += static_cast<double>(c.preemptions);
    m.evictions += static_cast<double>(c.evictions);
    m.activations += static_cast<double>(c.activations);
    m.thrashes += static_cast<double>(c.thrashes);
  }
  m.outcomes = std::move(result->outcomes);
  return m;
}

Runs Serve(const System& system, const Scene& scene, uint32_t seeds) {
  const sim::World world = WorldOf(system, scene);
  const bool shows = isatty(STDERR_FILENO) != 0;
  Runs runs;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    if (shows) {
      fprintf(stderr, "\r\033[K  %s, seed %lu of %u", system.name.c_str(), seed,
              seeds);
    }
    runs.of_seed.push_back(
        ServeWorld(world, scene.load(seed), IsClairvoyant(system)));
  }
  if (shows) fputs("\r\033[K", stderr);
  return runs;
}

}  // namespace fineserve::bench
