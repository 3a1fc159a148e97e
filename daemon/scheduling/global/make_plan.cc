#include "daemon/scheduling/global/make_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "daemon/scheduling/global/exact/branch_and_bound.h"
#include "daemon/scheduling/global/exact/pooled_bound.h"
#include "daemon/scheduling/global/policy/fineserve_opt_policy.h"
#include "daemon/scheduling/global/prices.h"
#include "daemon/scheduling/global/resting.h"
#include "daemon/scheduling/global/score/kv_pressure.h"
#include "daemon/scheduling/global/troubles.h"

namespace fineserve::plan {
namespace {

constexpr size_t kExactModels = 8;
constexpr size_t kExactGpus = 4;

std::vector<std::string> GpuNames(const Problem& p, const Group& group) {
  std::vector<std::string> names;
  for (const uint32_t g : group) names.push_back(p.gpus[g].name);
  return names;
}

// Returns the KV that the policy promises a replica whatever its neighbours do.
double FloorOf(const Replica& r, const About& about, double kv_bytes) {
  if (about.sharing != Sharing::kPool) return kv_bytes;
  return about.charge == Charge::kFootprint ? r.base_kv_bytes : r.floor_bytes;
}

// Sets the replicas' rates. Replicas of a model get its rate in proportion to
// the tokens that they are expected to generate; the last replica gets the
// rest, so that the sum is the model's rate.
void SetRates(const Problem& p, const Assignment& a, Plan* plan) {
  for (uint32_t m = 0; m < p.models.size(); ++m) {
    double tokens = 0, left = p.models[m].rate;
    uint32_t last = 0;
    for (uint32_t r = p.first_replica[m]; r < p.first_replica[m + 1]; ++r) {
      if (!a.Hosted(r)) continue;
      tokens += plan->replicas[r].tokens_per_s;
      last = r;
    }
    if (a.HostedReplicas(m) == 0) continue;
    for (uint32_t r = p.first_replica[m]; r < last; ++r) {
      if (!a.Hosted(r)) continue;
      PlannedReplica& planned = plan->replicas[r];
      planned.target_rate = p.models[m].rate * planned.tokens_per_s / tokens;
      left -= planned.target_rate;
    }
    plan->replicas[last].target_rate = left;
  }
}

void SetReplicas(const Problem& p, const Assignment& a, const About& about,
                 Plan* plan) {
  for (uint32_t r = 0; r < p.replicas.size(); ++r) {
    const Replica& replica = p.replicas[r];
    PlannedReplica planned;
    planned.model = p.models[replica.model].name;
    planned.number = replica.number;
    planned.gpus = GpuNames(p, a.GroupOf(r));
    planned.weight_bytes = replica.weight_bytes;
    planned.context_bytes = replica.context_bytes;
    planned.activation_bytes =
        replica.fixed_bytes - replica.weight_bytes - replica.context_bytes;
    plan->replicas.push_back(std::move(planned));
    plan->demand += replica.curve.demand;
  }
  for (const Share& s : SharesOf(a, about.sharing, 1)) {
    PlannedReplica& planned = plan->replicas[s.replica];
    planned.floor_bytes = FloorOf(p.replicas[s.replica], about, s.kv_bytes);
    planned.kv_bytes = std::max(s.kv_bytes, planned.floor_bytes);
    planned.tokens_per_s = s.tokens;
  }
  SetRates(p, a, plan);
}

std::string RejectionText(const Problem& p, const Rejection& r) {
  const std::string& name = p.gpus[r.gpu].name;
  switch (r.why) {
    case Rejection::Why::kPinnedElsewhere:
      return name + ": it is pinned elsewhere";
    case Rejection::Why::kSibling:
      return name + ": another replica of it is there";
    case Rejection::Why::kNoRoom:
      return absl::StrFormat("%s: %.1f GiB short", name,
                             r.missing_bytes / kGib);
    case Rejection::Why::kNoHostMemory:
      return absl::StrFormat("%s: %.1f GiB of host memory short", name,
                             r.missing_bytes / kGib);
  }
  return name;
}

void SetReasons(const Problem& p, const Journal& journal, Plan* plan) {
  uint32_t turn = 0;
  for (const Decision& d : journal.decisions) {
    Reason reason;
    reason.replica = p.NameOf(d.replica);
    reason.model = p.models[p.replicas[d.replica].model].name;
    reason.turn = ++turn;
    reason.order = journal.order;
    reason.measure = journal.measure;
    reason.least_is_best = journal.least_is_best;
    reason.all_fit = journal.all_fit;
    for (const Candidate& c : d.candidates) {
      reason.considered.push_back({GpuNames(p, c.group), c.score});
    }
    reason.more_considered = d.more_candidates;
    for (const Rejection& r : d.rejections) {
      reason.rejected.push_back(RejectionText(p, r));
    }
    reason.more_rejected = d.more_rejections;
    plan->reasons.push_back(std::move(reason));
  }
}

Gap FindGap(const Problem& p, const Assignment& a, const Worth& worth,
            const About& about, uint64_t exact_steps) {
  Gap gap;
  if (exact_steps > 0 && p.models.size() <= kExactModels &&
      p.gpus.size() <= kExactGpus) {
    // A placement that does not fit a pool cannot be the start.
    const Assignment start =
        about.sharing == Sharing::kTime ? Assignment(p) : a;
    const Optimum best = FindOptimum(p, start, exact_steps);
    gap.exact = best.proven;
    gap.best = best.worth.goodput;
    gap.hosted = best.worth.hosted;
  }
  if (!gap.exact) {
    const uint32_t least = worth.hosted == p.models.size() ? 1 : 0;
    std::vector<Hosting> hostings;
    for (uint32_t m = 0; m < p.models.size(); ++m) {
      hostings.push_back({m, least, p.sizings[m].replicas});
    }
    gap.best = PooledBound(p, hostings);
    gap.hosted = static_cast<uint32_t>(p.models.size());
  }
  if (gap.best > 0) {
    gap.relative = std::max(0.0, 1 - worth.goodput / gap.best);
  }
  return gap;
}

Plan Describe(const Problem& p, const Assignment& a, const About& about,
              uint64_t exact_steps) {
  Plan plan;
  plan.policy = about.name;
  plan.tier = about.tier;
  plan.source = about.source;
  plan.sharing = about.sharing;
  plan.worth = WorthOf(a, about.sharing);
  plan.kvpr_v1 = HighestPressure(a, Pressure::kV1);
  plan.kvpr_v3 = HighestPressure(a, Pressure::kV3);
  SetReplicas(p, a, about, &plan);
  SetResting(a, &plan);
  plan.troubles = FindTroubles(a, about.charge);
  plan.gap = FindGap(p, a, plan.worth, about, exact_steps);
  return plan;
}

// Returns the worth of the changed cluster's plan; an empty worth if it cannot
// be planned, as when its last GPU was taken away.
Worth WorthAfter(const Snapshot& changed,
                 const std::vector<std::string>& movers, Options options) {
  options.reasons = false;
  options.exact_steps = 0;
  options.priced_gpus = 0;
  const bool warm = options.policy == "fineserve-opt";
  const auto plan =
      warm ? Replan(changed, movers, options) : MakePlan(changed, options);
  return plan.ok() ? plan->worth : Worth();
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Snapshot& snapshot,
                              const Options& options) {
  const auto problem = MakeProblem(snapshot, options.problem);
  if (!problem.ok()) return problem.status();
  const auto policy = MakePolicy(options.policy, options.of_policy);
  if (!policy.ok()) return policy.status();
  Journal journal;
  for (uint32_t m = 0; m < problem->models.size(); ++m) {
    if (problem->models[m].name == options.explain_only) journal.only_model = m;
  }
  const Assignment a =
      (*policy)->Place(*problem, options.reasons ? &journal : nullptr);
  Plan plan = Describe(*problem, a, (*policy)->about(), options.exact_steps);
  SetReasons(*problem, journal, &plan);
  if (options.priced_gpus == 0) return plan;
  const auto again = [&options](const Snapshot& changed,
                                const std::vector<std::string>& movers) {
    return WorthAfter(changed, movers, options);
  };
  SetPrices(snapshot, options.priced_gpus, again, &plan);
  return plan;
}

absl::StatusOr<Plan> DescribeCurrent(const Snapshot& snapshot,
                                     const Options& options) {
  const auto problem = MakeProblem(snapshot, options.problem);
  if (!problem.ok()) return problem.status();
  const FineServeOptPolicy policy(options.of_policy.search);
  return Describe(*problem, AsItIs(*problem), policy.about(), 0);
}

absl::StatusOr<Plan> RestBeside(const Snapshot& snapshot,
                                const Options& options) {
  const auto problem = MakeProblem(snapshot, options.problem);
  if (!problem.ok()) return problem.status();
  Assignment a(*problem);
  for (uint32_t r = 0; r < problem->replicas.size(); ++r) {
    if (!problem->current[r].empty()) a.Put(r, problem->current[r]);
  }
  Plan plan;
  SetReplicas(*problem, a, FineServeOptPolicy(options.of_policy.search).about(),
              &plan);
  SetResting(a, &plan);
  return plan;
}

absl::StatusOr<Plan> Replan(const Snapshot& snapshot,
                            const std::vector<std::string>& changed,
                            const Options& options) {
  const auto problem = MakeProblem(snapshot, options.problem);
  if (!problem.ok()) return problem.status();
  const FineServeOptPolicy policy(options.of_policy.search);
  Assignment a = AsItIs(*problem);
  const std::set<std::string> names(changed.begin(), changed.end());
  std::vector<uint32_t> replicas;
  for (uint32_t r = 0; r < problem->replicas.size(); ++r) {
    const uint32_t model = problem->replicas[r].model;
    if (!a.Hosted(r) || names.count(problem->models[model].name) > 0) {
      replicas.push_back(r);
    }
  }
  ImproveAround(replicas, options.of_policy.search, &a);
  return Describe(*problem, a, policy.about(), 0);
}

}  // namespace fineserve::plan
