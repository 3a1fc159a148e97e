#include "daemon/scheduling/global/prices.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::plan {
namespace {

// With at most this many models, all may move to an added GPU; with more
// models, only those that lack the most.
constexpr size_t kMovers = 64;

GpuPrice Difference(const std::string& gpu, const Worth& with,
                    const Worth& without) {
  return {gpu, static_cast<int>(with.hosted) - static_cast<int>(without.hosted),
          with.goodput - without.goodput, with.headroom - without.headroom};
}

std::map<std::string, double> TokensByGpu(const Snapshot& s, const Plan& plan) {
  std::map<std::string, double> tokens;
  for (const Gpu& g : s.gpus) tokens[g.name] = 0;
  for (const PlannedReplica& r : plan.replicas) {
    for (const std::string& g : r.gpus) tokens[g] += r.tokens_per_s;
  }
  return tokens;
}

// Returns the same problem without one GPU, pins to it and groups with it.
Snapshot Without(Snapshot s, const std::string& gpu) {
  const auto same = [&gpu](const Gpu& g) { return g.name == gpu; };
  s.gpus.erase(std::find_if(s.gpus.begin(), s.gpus.end(), same));
  std::vector<ModelDemand> kept;
  for (ModelDemand& m : s.models) {
    const size_t pins = m.pins.size(), groups = m.groups.size();
    std::erase(m.pins, gpu);
    std::erase_if(m.groups, [&gpu](const std::vector<std::string>& group) {
      return std::find(group.begin(), group.end(), gpu) != group.end();
    });
    const bool has_place =
        (pins == 0 || !m.pins.empty()) && (groups == 0 || !m.groups.empty());
    if (has_place) kept.push_back(std::move(m));
  }
  s.models = std::move(kept);
  return s;
}

void PriceLosses(const Snapshot& s, size_t most, PlanAgain plan_again,
                 Plan* plan) {
  std::vector<std::pair<double, std::string>> gpus;
  for (const auto& [name, tokens] : TokensByGpu(s, *plan)) {
    gpus.push_back({tokens, name});
  }
  std::sort(gpus.begin(), gpus.end());
  gpus.resize(std::min(gpus.size(), most));
  for (const auto& [tokens, name] : gpus) {
    const Worth left = plan_again(Without(s, name), {});
    plan->lost.push_back(Difference(name, plan->worth, left));
  }
}

// Returns the models that lack the most tokens, by name.
std::vector<std::string> Movers(const Snapshot& s, const Plan& plan) {
  std::map<std::string, double> lacking;
  for (const ModelDemand& m : s.models) {
    lacking[m.name] = m.rate * m.output_tokens;
  }
  for (const PlannedReplica& r : plan.replicas) {
    lacking[r.model] -= r.tokens_per_s;
  }
  std::vector<std::pair<double, std::string>> most;
  for (const auto& [name, tokens] : lacking) most.push_back({-tokens, name});
  std::sort(most.begin(), most.end());
  most.resize(std::min(most.size(), kMovers));
  std::vector<std::string> names;
  for (const auto& [tokens, name] : most) names.push_back(name);
  return names;
}

void PriceAdditions(const Snapshot& s, PlanAgain plan_again, Plan* plan) {
  std::map<double, const Gpu*> first;  // by size, the first by name
  for (const Gpu& g : s.gpus) {
    const Gpu*& known = first[g.memory_bytes];
    if (known == nullptr || g.name < known->name) known = &g;
  }
  for (const auto& [bytes, example] : first) {
    const Gpu& like = *example;
    Snapshot more = s;
    more.gpus.push_back(like);
    more.gpus.back().name = absl::StrCat("another ", like.name);
    const Worth worth = plan_again(more, Movers(s, *plan));
    plan->added.push_back(Difference(like.name, worth, plan->worth));
  }
}

}  // namespace

Snapshot After(const Snapshot& snapshot, const Plan& plan) {
  Snapshot after = snapshot;
  after.current.clear();
  for (const PlannedReplica& r : plan.replicas) {
    if (!r.gpus.empty()) after.current.push_back({r.model, r.gpus});
  }
  return after;
}

void SetPrices(const Snapshot& snapshot, size_t most, PlanAgain plan_again,
               Plan* plan) {
  const Snapshot after = After(snapshot, *plan);
  PriceLosses(after, most, plan_again, plan);
  PriceAdditions(after, plan_again, plan);
}

}  // namespace fineserve::plan
