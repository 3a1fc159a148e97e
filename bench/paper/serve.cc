#include "bench/paper/serve.h"

#include <utility>

#include "bench/micro/report.h"
#include "bench/paper/baselines.h"
#include "bench/paper/engines.h"

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
  const plan::Problem problem = ProblemOf(system, scene.snapshot);
  return EnginesOf(system, scene,
                   AssignmentOf(system, problem, /*journal=*/nullptr));
}

Measured ServeOnce(const System& system, const Scene& scene, uint64_t seed) {
  const sim::World world = WorldOf(system, scene);
  const workload::Trace trace = scene.load(seed);
  const auto model_of = sim::ModelsOf(world, trace);
  if (!model_of.ok()) Die(model_of.status().ToString());
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
  }
  m.outcomes = std::move(result->outcomes);
  return m;
}

Runs Serve(const System& system, const Scene& scene, uint32_t seeds) {
  Runs runs;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    runs.of_seed.push_back(ServeOnce(system, scene, seed));
  }
  return runs;
}

}  // namespace fineserve::bench
