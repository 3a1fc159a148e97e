#include "daemon/scheduling/global/policy/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "daemon/scheduling/global/model/policy_names.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "daemon/scheduling/global/testdata/random_snapshot.h"

namespace fineserve::plan {
namespace {

Assignment PlaceBy(const std::string& name, const Problem& p,
                   Journal* journal = nullptr,
                   const PolicyOptions& options = PolicyOptions()) {
  return (*MakePolicy(name, options))->Place(p, journal);
}

Problem ProblemOf(const Snapshot& s) {
  return *MakeProblem(s, ProblemOptions());
}

TEST(Policies, EachHasItsNameATierAndASource) {
  for (const std::string& name : PolicyNames()) {
    const auto policy = MakePolicy(name, PolicyOptions());
    ASSERT_TRUE(policy.ok());
    EXPECT_EQ((*policy)->about().name, name);
    EXPECT_NE(std::string((*policy)->about().source), "");
  }
  const auto none = MakePolicy("best", PolicyOptions());
  ASSERT_FALSE(none.ok());
  for (const std::string& name : PolicyNames()) {
    EXPECT_NE(none.status().message().find(name), std::string::npos);
  }
}

TEST(Policies, FilesMayNameAllOfThem) {
  EXPECT_EQ(PolicyNames(), std::vector<std::string>(std::begin(kPolicyNames),
                                                    std::end(kPolicyNames)));
}

// The printed form looks at a GPU as it is before the model comes, so a small
// empty GPU looks as good as a large one; and it does not ask whether the model
// fits.
TEST(Prism, PrintedPutsAModelWhereItDoesNotFitAndMendedDoesNot) {
  const Problem p = ProblemOf(SmallModels({1}, {12e9, 80e9}));
  EXPECT_FALSE(PlaceBy("prism", p).Hosted(0));
  EXPECT_EQ(PlaceBy("prism-mended", p).GroupOf(0), (Group{1}));
}

TEST(Prism, AModelStaysUnlessTheGainExceedsTheThreshold) {
  Snapshot s = SmallModels({1}, {60e9, 80e9});
  s.current = {{"a", {"gpu-0"}}};
  const Problem p = ProblemOf(s);
  // KVPR there is (80 − 16) / (60 − 16) = 1.45 times the best.
  PolicyOptions options;
  options.stay_share = 0.4;
  EXPECT_EQ(PlaceBy("prism-mended", p, nullptr, options).GroupOf(0),
            (Group{0}));
  options.stay_share = 0.2;
  EXPECT_EQ(PlaceBy("prism-mended", p, nullptr, options).GroupOf(0),
            (Group{1}));
}

TEST(PrismOpt, NeverHasMorePressureThanTheGreedyAndOftenLess) {
  int less = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RandomKind kind;
    kind.models = 8;
    kind.gpus = 4;
    const Problem p = ProblemOf(RandomSnapshot(Tp1Profiles(), kind, seed));
    for (const Pressure pressure : {Pressure::kV1, Pressure::kV3}) {
      PolicyOptions options;
      options.pressure = pressure;
      options.stay_share = 0;
      const double greedy = HighestPressure(
          PlaceBy("prism-mended", p, nullptr, options), pressure);
      const double best =
          HighestPressure(PlaceBy("prism-opt", p, nullptr, options), pressure);
      EXPECT_LE(best, greedy * (1 + 1e-9)) << "seed " << seed;
      less += best < greedy * 0.99;
    }
  }
  EXPECT_GT(less, 10);
}

TEST(Dedicated, SharesNoGpuAndTakesTheSmallestThatHoldsIt) {
  const Problem p = ProblemOf(SmallModels({1, 1, 1}, {80e9, 40e9, 80e9}));
  const Assignment a = PlaceBy("dedicated", p);
  EXPECT_EQ(a.GroupOf(0), (Group{1}));
  for (uint32_t g = 0; g < 3; ++g) EXPECT_EQ(a.On(g).size(), 1u);
  const Problem more = ProblemOf(SmallModels({1, 1, 1}, {80e9, 80e9}));
  EXPECT_EQ(PlaceBy("dedicated", more).hosted_models(), 2u);
}

// The second replica's weights displace KV that makes more tokens.
TEST(FineServeOpt, LeavesOutAReplicaThatCostsTokens) {
  Snapshot s = SmallModels({0.5, 12}, {33e9, 33e9});
  s.models[0].replicas = 2;
  s.models[1].replicas = 1;
  const Problem p = ProblemOf(s);
  const Assignment a = PlaceBy("fineserve-opt", p);
  EXPECT_EQ(a.hosted_models(), 2u);
  EXPECT_EQ(a.HostedReplicas(0), 1u);
}

TEST(FineServeOpt, LeavesNoGpuEmptyBesideACrowdedOne) {
  const Problem p = ProblemOf(SmallModels({1, 1, 1}, {80e9, 80e9, 80e9}));
  const Assignment a = PlaceBy("fineserve-opt", p);
  for (uint32_t g = 0; g < 3; ++g) EXPECT_EQ(a.On(g).size(), 1u);
}

TEST(FineServeOpt, StartsFromThePresentPlacement) {
  Snapshot s = SmallModels({1, 1}, {80e9, 80e9});
  s.current = {{"a", {"gpu-1"}}, {"b", {"gpu-0"}}, {"gone", {"gpu-0"}}};
  const Problem p = ProblemOf(s);
  const Assignment a = PlaceBy("fineserve-opt", p);
  EXPECT_EQ(a.GroupOf(0), (Group{1})) << "nothing is better elsewhere";
  EXPECT_EQ(a.GroupOf(1), (Group{0}));
}

}  // namespace
}  // namespace fineserve::plan
