// Tests the rules that every policy must keep, on plans of random clusters.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "daemon/scheduling/global/exact/branch_and_bound.h"
#include "daemon/scheduling/global/exact/pooled_bound.h"
#include "daemon/scheduling/global/make_plan.h"
#include "daemon/scheduling/global/model/groups.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "daemon/scheduling/global/testdata/quick_options.h"
#include "daemon/scheduling/global/testdata/random_snapshot.h"

namespace fineserve::plan {
namespace {

// Divisor of the number of random instances below: sanitizers, which look for
// other errors and take far longer, try a twelfth of them.
#if defined(FINESERVE_SANITIZED)
constexpr int kPart = 12;
#else
constexpr int kPart = 1;
#endif

// Returns the TP 1 profiles as measured, and the same profiles as if two GPUs
// halved a model.
std::vector<Profile> Profiles() {
  std::vector<Profile> profiles = Tp1Profiles();
  const size_t measured = profiles.size();
  for (size_t i = 0; i < measured; ++i) {
    Profile halved = profiles[i];
    halved.tp = 2;
    profiles.push_back(halved);
  }
  return profiles;
}

// Two groups that are not neighbours, wherever a node has GPUs for both.
std::vector<std::vector<std::string>> GroupsFor(const Snapshot& s,
                                                uint32_t tp) {
  std::vector<std::vector<std::string>> groups;
  for (size_t g = 0; g + size_t{2} * tp <= s.gpus.size(); ++g) {
    if (s.gpus[g].node != s.gpus[g + size_t{2} * tp - 1].node) continue;
    if (g > 0 && s.gpus[g].node == s.gpus[g - 1].node) continue;
    for (size_t first : {g, g + 1}) {
      groups.emplace_back();
      for (size_t i = 0; i < tp; ++i) {
        groups.back().push_back(s.gpus[first + 2 * i].name);
      }
    }
  }
  return groups;
}

Snapshot Draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  RandomKind kind;
  kind.models = 1 + random() % 8;
  kind.gpus = 1 + random() % 5;
  kind.gpus_of_node = 1 + random() % 4;
  kind.weights = 0.2 + 0.1 * static_cast<double>(random() % 10);
  kind.pressure = 0.25 * static_cast<double>(1 + random() % 12);
  kind.mixed_gpus = random() % 2 == 0;
  Snapshot s = RandomSnapshot(Profiles(), kind, seed);
  for (ModelDemand& m : s.models) {
    if (random() % 4 == 0) m.replicas = 2;
    if (random() % 6 == 0) m.pins = {s.gpus[random() % s.gpus.size()].name};
    if (m.pins.empty() && random() % 3 == 0) m.groups = GroupsFor(s, m.tp);
  }
  const bool pools = random() % 3 == 0;
  for (Gpu& g : s.gpus) {
    if (!pools || random() % 4 == 0) continue;
    g.pool_bytes = g.memory_bytes * 0.1 * static_cast<double>(1 + random() % 7);
  }
  return s;
}

// Bytes that residents of one GPU use.
struct Used {
  double beside_pool = 0, floors = 0, all = 0;
};

void ExpectFits(const Snapshot& s, const Plan& plan) {
  std::map<std::string, Used> used;
  const auto add = [&plan](double bytes, double* sum) {
    // Residents that take turns are on the GPU one at a time.
    const bool turns = plan.sharing == Sharing::kTime;
    *sum = turns ? std::max(*sum, bytes) : *sum + bytes;
  };
  for (const PlannedReplica& r : plan.replicas) {
    const double fixed = r.weight_bytes + r.activation_bytes;
    for (const std::string& gpu : r.gpus) {
      add(fixed, &used[gpu].beside_pool);
      add(r.floor_bytes, &used[gpu].floors);
      add(fixed + r.floor_bytes, &used[gpu].all);
    }
  }
  for (const Gpu& g : s.gpus) {
    const Used& there = used[g.name];
    const double most = g.Capacity() * (1 + 1e-9);
    EXPECT_LE(there.all, most) << g.name;
    if (g.pool_bytes == 0) continue;
    EXPECT_LE(there.beside_pool + g.pool_bytes, most) << g.name;
    EXPECT_LE(there.floors, g.pool_bytes * (1 + 1e-9)) << g.name;
  }
}

void ExpectApart(const Plan& plan) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const PlannedReplica& r : plan.replicas) {
    for (const std::string& gpu : r.gpus) {
      EXPECT_TRUE(seen.insert({r.model, gpu}).second)
          << "two replicas of " << r.model << " on " << gpu;
    }
  }
}

bool HasGroup(const ModelDemand& m, const std::set<std::string>& gpus) {
  return std::any_of(m.groups.begin(), m.groups.end(), [&](const auto& group) {
    return std::set<std::string>(group.begin(), group.end()) == gpus;
  });
}

void ExpectGroups(const Snapshot& s, const Plan& plan) {
  std::map<std::string, std::string> node_of;
  for (const Gpu& g : s.gpus) node_of[g.name] = g.node;
  for (const ModelDemand& m : s.models) {
    for (const PlannedReplica& r : plan.replicas) {
      if (r.model != m.name || r.gpus.empty()) continue;
      EXPECT_EQ(r.gpus.size(), m.tp) << r.model;
      const std::set<std::string> its(r.gpus.begin(), r.gpus.end());
      EXPECT_TRUE(m.groups.empty() || HasGroup(m, its))
          << r.model << " is on a group that is not listed";
      for (const std::string& g : r.gpus) {
        EXPECT_EQ(node_of[g], node_of[r.gpus[0]]) << r.model;
        const bool pinned = !m.pins.empty();
        EXPECT_TRUE(!pinned || std::count(m.pins.begin(), m.pins.end(), g))
            << r.model << " is not pinned to " << g;
      }
    }
  }
}

void ExpectRates(const Snapshot& s, const Plan& plan) {
  for (const ModelDemand& m : s.models) {
    double sum = 0;
    bool hosted = false;
    for (const PlannedReplica& r : plan.replicas) {
      if (r.model != m.name) continue;
      EXPECT_EQ(r.target_rate > 0, !r.gpus.empty()) << r.model;
      EXPECT_LE(r.floor_bytes, r.kv_bytes) << r.model;
      sum += r.target_rate;
      hosted |= !r.gpus.empty();
    }
    if (hosted) {
      EXPECT_NEAR(sum, m.rate, 1e-9 * m.rate) << m.name;
    }
  }
}

TEST(PlanProperty, EveryPlanFitsAndSumsToTheRates) {
  for (uint64_t seed = 1; seed <= 48 / kPart; ++seed) {
    const Snapshot s = Draw(seed);
    for (const std::string& policy : PolicyNames()) {
      SCOPED_TRACE(policy + ", seed " + std::to_string(seed));
      const auto plan = MakePlan(s, Quick(policy));
      ASSERT_TRUE(plan.ok()) << plan.status();
      ExpectFits(s, *plan);
      ExpectApart(*plan);
      ExpectGroups(s, *plan);
      ExpectRates(s, *plan);
      EXPECT_LE(plan->worth.goodput, plan->demand * (1 + 1e-9));
      if (plan->sharing != Sharing::kTime) {
        EXPECT_LE(plan->worth.goodput, plan->gap.best * (1 + 1e-6));
      }
      if (HasFailure()) return;
    }
  }
}

// Maps each replica to its GPUs, to compare plans.
std::map<std::string, std::vector<std::string>> Placement(const Plan& plan) {
  std::map<std::string, std::vector<std::string>> placement;
  for (const PlannedReplica& r : plan.replicas) {
    placement[r.model + "#" + std::to_string(r.number)] = r.gpus;
  }
  return placement;
}

TEST(PlanProperty, TheOrderOfTheInputMeansNothing) {
  for (uint64_t seed = 1; seed <= 12 / kPart; ++seed) {
    const Snapshot s = Draw(seed);
    Snapshot shuffled = s;
    std::mt19937_64 random(seed);
    std::shuffle(shuffled.models.begin(), shuffled.models.end(), random);
    std::shuffle(shuffled.gpus.begin(), shuffled.gpus.end(), random);
    std::shuffle(shuffled.profiles.begin(), shuffled.profiles.end(), random);
    for (const std::string& policy : PolicyNames()) {
      const auto one = MakePlan(s, Quick(policy));
      const auto other = MakePlan(shuffled, Quick(policy));
      ASSERT_TRUE(one.ok() && other.ok());
      EXPECT_EQ(Placement(*one), Placement(*other))
          << policy << ", seed " << seed;
      EXPECT_EQ(one->worth.goodput, other->worth.goodput);
    }
  }
}

TEST(PlanProperty, OursIsNeverWorthLessThanFineServes) {
  for (uint64_t seed = 1; seed <= 48 / kPart; ++seed) {
    const Snapshot s = Draw(seed);
    const auto ours = MakePlan(s, Quick("fineserve-opt"));
    const auto theirs = MakePlan(s, Quick("fineserve"));
    ASSERT_TRUE(ours.ok() && theirs.ok());
    EXPECT_FALSE(Better(theirs->worth, ours->worth)) << "seed " << seed;
  }
}

// A small version of `scripts/bench plan`, which measures this on hundreds of
// instances.
TEST(PlanProperty, OursHostsAllThatCanBeAndIsWithinThreePerCentOfTheBest) {
  int tried = 0;
  for (uint64_t seed = 1; tried < 60 / kPart; ++seed) {
    const auto p = MakeProblem(Draw(seed), ProblemOptions());
    ASSERT_TRUE(p.ok()) << p.status();
    if (p->replicas.size() > 12 || p->gpus.size() > 4) continue;
    const Assignment ours =
        (*MakePolicy("fineserve-opt", PolicyOptions()))->Place(*p, nullptr);
    const Optimum best = FindOptimum(*p, ours, 20'000);
    if (!best.proven) continue;
    ++tried;
    const Worth worth = WorthOf(ours, Sharing::kPool);
    EXPECT_EQ(worth.hosted, best.worth.hosted) << "seed " << seed;
    EXPECT_GE(worth.goodput, 0.97 * best.worth.goodput) << "seed " << seed;
  }
}

// Finds the best worth of all placements by trying them one by one.
void TryAll(uint32_t replica, Assignment* a, Worth* best) {
  if (replica == a->problem().replicas.size()) {
    const Worth worth = WorthOf(*a, Sharing::kPool);
    if (Better(worth, *best)) *best = worth;
    return;
  }
  TryAll(replica + 1, a, best);
  const Problem& p = a->problem();
  const uint32_t tp = p.replicas[replica].tp;
  for (uint32_t g = 0; g < p.gpus.size(); ++g) {
    for (uint32_t h = tp == 1 ? g : g + 1; h < p.gpus.size(); ++h) {
      const bool same_node = p.node_of[g] == p.node_of[h];
      if ((tp == 1 && h > g) || !same_node) break;
      if (!a->Takes(g, replica, Charge::kLeast) ||
          !a->Takes(h, replica, Charge::kLeast)) {
        continue;
      }
      a->Put(replica, tp == 1 ? Group{g} : Group{g, h});
      TryAll(replica + 1, a, best);
      a->Remove(replica);
    }
  }
}

TEST(PlanProperty, BranchAndBoundEqualsBruteForceAndNoPolicyBeatsIt) {
  int tried = 0;
  for (uint64_t seed = 1; tried < 36 / kPart; ++seed) {
    const Snapshot s = Draw(seed);
    const auto p = MakeProblem(s, ProblemOptions());
    ASSERT_TRUE(p.ok()) << p.status();
    if (p->replicas.size() > 5 || p->gpus.size() > 4) continue;
    ++tried;
    Worth brute;
    Assignment empty(*p);
    TryAll(0, &empty, &brute);
    const Optimum best = FindOptimum(*p, Assignment(*p), 1'000'000);
    EXPECT_TRUE(best.proven) << "seed " << seed;
    EXPECT_EQ(best.worth.hosted, brute.hosted) << "seed " << seed;
    EXPECT_NEAR(best.worth.goodput, brute.goodput, 1e-6 * brute.goodput)
        << "seed " << seed;
    for (const std::string& policy : PolicyNames()) {
      const auto plan = MakePlan(s, Quick(policy));
      ASSERT_TRUE(plan.ok());
      if (plan->sharing == Sharing::kTime) continue;
      EXPECT_LE(plan->worth.hosted, brute.hosted) << policy;
      if (plan->worth.hosted == brute.hosted) {
        EXPECT_LE(plan->worth.goodput, brute.goodput * (1 + 1e-6)) << policy;
      }
    }
  }
}

// Lowers `least` to the smallest "highest KVPR" among all placements of all
// replicas (TP 1).
void LeastPressure(uint32_t replica, Assignment* a, double* least) {
  const double now = HighestPressure(*a, Pressure::kV1);
  if (now >= *least) return;
  if (replica == a->problem().replicas.size()) {
    *least = now;
    return;
  }
  ForEachGroup(*a, replica, Charge::kLeast, [&](const Group& group) {
    a->Put(replica, group);
    LeastPressure(replica + 1, a, least);
    a->Remove(replica);
  });
}

// For the algorithm as printed, Prism's appendix A.1.1 bounds the highest KVPR:
// KVPR ≤ OPT · (1 + C / (S_b − w_k)), where b is the GPU with this KVPR, k the
// last model that came to b, C the capacity, and S_b what b shared before k
// came.
TEST(PlanProperty, PrismStaysWithinItsBound) {
  int tried = 0;
  for (uint64_t seed = 1; tried < 96 / kPart; ++seed) {
    std::mt19937_64 random(seed);
    RandomKind kind;
    kind.models = 2 + random() % 5;
    kind.gpus = 2 + random() % 2;
    kind.weights = 0.5;
    kind.one_replica = true;
    const auto p = MakeProblem(RandomSnapshot(Tp1Profiles(), kind, seed),
                               ProblemOptions());
    ASSERT_TRUE(p.ok());
    Journal journal;
    const Assignment a =
        (*MakePolicy("prism", PolicyOptions()))->Place(*p, &journal);
    uint32_t hosted = 0;
    for (uint32_t r = 0; r < p->replicas.size(); ++r) hosted += a.Hosted(r);
    if (hosted < p->replicas.size()) continue;
    ++tried;
    const double highest = HighestPressure(a, Pressure::kV1);
    double opt = std::numeric_limits<double>::infinity();
    Assignment empty(*p);
    LeastPressure(0, &empty, &opt);
    double bound = 0;
    for (uint32_t g = 0; g < p->gpus.size(); ++g) {
      const GpuPressure on = PressureOn(a, g, Pressure::kV1);
      // k came last, so S_b − w_k is what b shares in the end.
      if (on.Ratio() < highest) continue;
      bound = opt * (1 + p->gpus[g].Capacity() / on.shared_bytes);
    }
    EXPECT_LE(highest, bound * (1 + 1e-9)) << "seed " << seed;
    EXPECT_GE(highest, opt * (1 - 1e-9)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fineserve::plan
