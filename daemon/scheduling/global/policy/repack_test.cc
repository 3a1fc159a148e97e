#include "daemon/scheduling/global/policy/repack.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/scheduling/global/policy/repack_all.h"
#include "daemon/scheduling/global/score/sharing.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "daemon/scheduling/global/testdata/random_snapshot.h"

namespace fineserve::plan {
namespace {

constexpr size_t kWidth = 8;

// A sequence takes 1 byte and makes 100 tokens/s (`wide`), or 50 (`narrow`).
Replica Made(uint32_t model, uint32_t tp, double fixed, double c0,
             double demand) {
  Replica r;
  r.model = model;
  r.tp = tp;
  r.fixed_bytes = r.weight_bytes = fixed;
  r.floor_bytes = r.base_kv_bytes = 1;
  r.curve = {c0, 1e-8, 1, 100, demand};
  return r;
}

// One engine over two GPUs, and a model that the operator gives three replicas,
// each a third of its rate, on three GPUs of 40 bytes. Beside a replica the
// wide engine has 9 bytes, alone 30.
Problem WideAndThree() {
  Problem p;
  p.replicas = {Made(0, 2, 10, 0.01, 2000)};
  for (uint32_t n = 0; n < 3; ++n) {
    p.replicas.push_back(Made(1, 1, 20, 0.02, 300));
    p.replicas.back().number = n;
  }
  p.models.resize(2);
  p.models[0].name = "wide";
  p.models[1].name = "narrow";
  p.models[1].replicas = 3;
  p.sizings.resize(2);
  p.sizings[1].replicas = 3;
  p.first_replica = {0, 1, 4};
  p.gpus.assign(3, {"g", "n", 40, 0});
  p.node_of.assign(3, 0);
  p.node_begins = {0, 3};
  p.host_bytes = {0};
  p.pin_class.assign(3, 0);
  p.current.resize(4);
  return p;
}

Assignment OneOnEachGpu(const Problem& p) {
  Assignment a(p);
  a.Put(0, {0, 1});
  for (uint32_t n = 0; n < 3; ++n) a.Put(1 + n, {n});
  return a;
}

std::vector<Group> GroupsOf(const Assignment& a) {
  std::vector<Group> groups;
  for (uint32_t r = 0; r < a.problem().replicas.size(); ++r) {
    groups.push_back(a.GroupOf(r));
  }
  return groups;
}

// The wide engine gains only once neither of its GPUs has a neighbour.
TEST(RepackAll, TakesOutTogetherWhatNoSingleStepBetters) {
  const Problem p = WideAndThree();
  Assignment a = OneOnEachGpu(p);
  Improve(SearchLimits(), &a);
  EXPECT_EQ(GroupsOf(a), GroupsOf(OneOnEachGpu(p)));
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 900 + 50 + 50 + 300, 1);
  RepackAll(SearchLimits(), &a);
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 2000 + 300, 1);
  EXPECT_EQ(a.hosted_models(), 2u);
}

TEST(Repack, PutsBackWhereTheWholeIsWorthMost) {
  const Problem p = WideAndThree();
  Assignment a = OneOnEachGpu(p);
  Board board(&a);
  uint64_t tries = 1000;
  EXPECT_TRUE(Repack({1, 2, 3}, {0, 1, 2}, kWidth, &board, &tries));
  EXPECT_LT(tries, 1000u);
  EXPECT_NEAR(board.worth().goodput, 2000 + 300, 1);
  // This is the best placement, so nothing moves.
  const std::vector<Group> best = GroupsOf(a);
  EXPECT_FALSE(Repack({0, 1, 2, 3}, {0, 1, 2}, kWidth, &board, &tries));
  EXPECT_EQ(GroupsOf(a), best);
}

TEST(Repack, UsesTheGivenGpusAlone) {
  const Problem p = WideAndThree();
  Assignment a(p);
  Board board(&a);
  uint64_t tries = 1000;
  EXPECT_TRUE(Repack({0, 1, 2, 3}, {0, 2}, kWidth, &board, &tries));
  EXPECT_EQ(a.GroupOf(0), (Group{0, 2}));
  EXPECT_TRUE(a.On(1).empty());
}

// The first replica of each model before the second ones, though these are
// larger.
TEST(Repack, HostsAllModelsFirst) {
  const Problem p = WideAndThree();
  Assignment a(p);
  Board board(&a);
  uint64_t tries = 1000;
  EXPECT_TRUE(Repack({0, 1, 2, 3}, {0, 1, 2}, 1, &board, &tries));
  EXPECT_EQ(a.hosted_models(), 2u);
}

TEST(Repack, LeavesAllAsItWasOnceTheTriesHaveRunOut) {
  const Problem p = WideAndThree();
  for (uint64_t most = 0; most < 8; ++most) {
    Assignment a = OneOnEachGpu(p);
    Board board(&a);
    uint64_t tries = most;
    EXPECT_FALSE(Repack({1, 2, 3}, {0, 1, 2}, kWidth, &board, &tries));
    EXPECT_EQ(tries, 0u);
    EXPECT_EQ(GroupsOf(a), GroupsOf(OneOnEachGpu(p)));
  }
}

TEST(RepackAll, NeverLeavesThePlanWorse) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RandomKind kind;
    kind.models = 8;
    kind.gpus = 4;
    kind.weights = 0.9;
    const auto p = MakeProblem(RandomSnapshot(Tp1Profiles(), kind, seed),
                               ProblemOptions());
    ASSERT_TRUE(p.ok());
    Assignment a(*p);
    for (uint32_t r = 0; r < p->replicas.size(); ++r) {
      const auto g = static_cast<uint32_t>((seed + r) % p->gpus.size());
      if (a.Takes(g, r, Charge::kLeast)) a.Put(r, {g});
    }
    const Worth given = WorthOf(a, Sharing::kPool);
    Improve(SearchLimits(), &a);
    const Worth stepped = WorthOf(a, Sharing::kPool);
    EXPECT_FALSE(Better(given, stepped)) << "seed " << seed;
    RepackAll(SearchLimits(), &a);
    EXPECT_FALSE(Better(stepped, WorthOf(a, Sharing::kPool)))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace fineserve::plan
