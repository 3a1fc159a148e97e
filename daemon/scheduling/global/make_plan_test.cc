#include "daemon/scheduling/global/make_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/scheduling/global/explain.h"
#include "daemon/scheduling/global/prices.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "daemon/scheduling/global/testdata/random_snapshot.h"

namespace fineserve::plan {
namespace {

using ::testing::HasSubstr;

ModelDemand Llama(const std::string& name, double rate,
                  const std::string& size = "8b") {
  return {name,
          "llama-3.1-" + size,
          size == "8b" ? "org" : "awq",
          1,
          rate,
          200,
          300,
          60.0};
}

Snapshot Cluster(const std::vector<ModelDemand>& models, size_t gpus,
                 double bytes = 80e9) {
  Snapshot s;
  s.profiles = Tp1Profiles();
  s.models = models;
  for (size_t g = 0; g < gpus; ++g) {
    s.gpus.push_back({"gpu-" + std::to_string(g), "node", bytes});
  }
  return s;
}

Plan PlanOf(const Snapshot& s, const std::string& policy = "fineserve-opt") {
  Options options;
  options.policy = policy;
  const auto plan = MakePlan(s, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(Plan());
}

TEST(MakePlan, BadInputIsOneLine) {
  const auto bad = MakePlan(Cluster({Llama("a", 0)}, 1), Options());
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("\"a\""));
  Options options;
  options.policy = "best";
  EXPECT_FALSE(MakePlan(Cluster({Llama("a", 1)}, 1), options).ok());
}

TEST(Troubles, AModelLargerThanAnyGroupIsShownWhatWouldHoldIt) {
  const Plan plan = PlanOf(Cluster({Llama("big", 0.2, "70b")}, 2, 24e9));
  ASSERT_EQ(plan.troubles.size(), 1u);
  EXPECT_THAT(plan.troubles[0].text, HasSubstr("the largest have 22.4 GiB"));
  EXPECT_THAT(plan.troubles[0].text, HasSubstr("a larger TP"));
  EXPECT_EQ(plan.worth.hosted, 0u);
}

TEST(Troubles, APoolThatLeavesAModelTooLittleIsNamed) {
  Snapshot s = Cluster({Llama("big", 0.2)}, 2);
  for (Gpu& g : s.gpus) g.pool_bytes = 70e9;
  const Plan plan = PlanOf(s);
  ASSERT_EQ(plan.troubles.size(), 1u);
  EXPECT_THAT(plan.troubles[0].text, HasSubstr("another --pool"));
  s.gpus[1].pool_bytes = 50e9;
  EXPECT_EQ(PlanOf(s).worth.hosted, 1u);
}

TEST(Troubles, ATpThatNoNodeHasIsSaid) {
  Snapshot s = Cluster({Llama("wide", 1)}, 2);
  Profile profile = s.profiles[0];
  profile.tp = 4;
  s.profiles.push_back(profile);
  s.models[0].architecture = profile.architecture;
  s.models[0].quantisation = profile.quantisation;
  s.models[0].tp = 4;
  const Plan plan = PlanOf(s);
  ASSERT_EQ(plan.troubles.size(), 1u);
  EXPECT_THAT(plan.troubles[0].text, HasSubstr("no node has 4 GPUs"));
}

// The change that a trouble names mends the trouble, and a slightly smaller
// change does not.
TEST(Troubles, TheSmallestChangeThatIsNamedMendsIt) {
  Snapshot s = Cluster({Llama("a", 1), Llama("b", 1)}, 1, 30e9);
  const Plan plan = PlanOf(s);
  ASSERT_EQ(plan.worth.hosted, 1u);
  ASSERT_EQ(plan.troubles.size(), 1u);
  double gib = 0;
  const std::string& text = plan.troubles[0].text;
  const size_t at = text.find("is ");
  ASSERT_NE(at, std::string::npos) << text;
  gib = std::stod(text.substr(at + 3));
  EXPECT_THAT(text, HasSubstr("GiB short on gpu-0"));
  s.gpus[0].memory_bytes += (gib + 0.05) * 1024 * 1024 * 1024;
  EXPECT_EQ(PlanOf(s).worth.hosted, 2u);
  s.gpus[0].memory_bytes -= 0.1 * 1024 * 1024 * 1024;
  EXPECT_EQ(PlanOf(s).worth.hosted, 1u);
}

TEST(Gap, IsExactOnSmallClustersAndABoundBeyond) {
  EXPECT_TRUE(PlanOf(Cluster({Llama("a", 1), Llama("b", 1)}, 2)).gap.exact);
  const Plan plan = PlanOf(Cluster({Llama("a", 1), Llama("b", 1)}, 5));
  EXPECT_FALSE(plan.gap.exact);
  EXPECT_LT(plan.gap.relative, 1e-6) << "both have all they ask for";
}

TEST(Prices, TellWhatAGpuIsWorth) {
  // Two models that would fill two GPUs each, and one GPU too few to host the
  // third model.
  const Snapshot s =
      Cluster({Llama("a", 4), Llama("b", 4), Llama("c", 0.5)}, 2, 30e9);
  const Plan plan = PlanOf(s);
  EXPECT_EQ(plan.worth.hosted, 2u);
  ASSERT_EQ(plan.lost.size(), 2u);
  for (const GpuPrice& price : plan.lost) EXPECT_EQ(price.hosted, 1);
  ASSERT_EQ(plan.added.size(), 1u);
  EXPECT_EQ(plan.added[0].hosted, 1);
  EXPECT_GT(plan.added[0].tokens, 0);
}

TEST(Explain, NamesTheMarginAndModelsWithoutRoom) {
  Snapshot s = Cluster({Llama("a", 1), Llama("b", 1)}, 3);
  s.gpus[2].memory_bytes = 10e9;
  const Plan plan = PlanOf(s, "fineserve");
  const auto b = Explain(plan, "b");
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(*b, HasSubstr("b is on gpu-1, alone."));
  EXPECT_THAT(*b, HasSubstr("% worse"));
  EXPECT_THAT(*b, HasSubstr("no candidate: gpu-2: "));
  EXPECT_THAT(*b, HasSubstr("GiB short"));
  const auto none = Explain(plan, "z");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("a, b"));
}

TEST(Explain, SaysWhyAReplicaThatFMAsksForIsNotPlaced) {
  Snapshot s = Cluster({Llama("a", 20), Llama("b", 40)}, 2, 36e9);
  s.models[1].replicas = 1;
  const Plan plan = PlanOf(s);
  ASSERT_EQ(plan.replicas.size(), 3u);
  EXPECT_EQ(plan.worth.hosted, 2u);
  for (const Trouble& t : plan.troubles) EXPECT_EQ(t.text, "");
  const auto a = Explain(plan, "a");
  ASSERT_TRUE(a.ok());
  EXPECT_THAT(*a, HasSubstr("2 replicas asked for, 1 placed: one more on gpu"));
  EXPECT_THAT(*a, HasSubstr("cost the plan"));
}

TEST(Replan, IsWorthAtLeastThePresentPlan) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    RandomKind kind;
    kind.models = 12;
    kind.gpus = 6;
    Snapshot s = RandomSnapshot(Tp1Profiles(), kind, seed);
    const Plan before = PlanOf(s, "fineserve");
    s = After(s, before);
    const auto again = Replan(s, {}, Options());
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(Better(before.worth, again->worth)) << "seed " << seed;
  }
}

TEST(Replan, AModelWhoseRateRisesMovesToWhereItGetsMore) {
  Snapshot s = Cluster({Llama("a", 2), Llama("b", 2), Llama("c", 2)}, 2, 33e9);
  for (ModelDemand& m : s.models) m.replicas = 1;
  s.current = {{"a", {"gpu-0"}}, {"b", {"gpu-0"}}, {"c", {"gpu-1"}}};
  s.models[0].rate = 5;
  s.models[2].rate = 0.1;
  const auto plan = Replan(s, {"a", "c"}, Options());
  ASSERT_TRUE(plan.ok());
  const Problem p = *MakeProblem(s, ProblemOptions());
  Assignment stays(p);
  stays.Put(0, {0});
  stays.Put(1, {0});
  stays.Put(2, {1});
  EXPECT_TRUE(Better(plan->worth, WorthOf(stays, Sharing::kPool)));
}

TEST(Replan, HostsAModelThatComes) {
  Snapshot s = Cluster({Llama("a", 1), Llama("b", 1)}, 2);
  s = After(s, PlanOf(s));
  s.models.push_back(Llama("c", 1));
  const auto plan = Replan(s, {"c"}, Options());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->worth.hosted, 3u);
}

}  // namespace
}  // namespace fineserve::plan
