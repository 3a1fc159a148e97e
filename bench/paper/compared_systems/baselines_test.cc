#include "bench/paper/compared_systems/baselines.h"

#include <gtest/gtest.h>

#include "daemon/scheduling/global/testdata/apex_profiles.h"

namespace fineserve::bench {
namespace {

using plan::Assignment;
using plan::Problem;
using plan::Snapshot;

Problem ProblemOf(const Snapshot& s) {
  return *plan::MakeProblem(s, plan::ProblemOptions());
}

Assignment PlaceBy(const std::string& name, const Problem& p) {
  return (*MakePlacement(name))->Place(p, nullptr);
}

TEST(PlacementNamesTest, EachIsMadeAndHasASource) {
  for (const std::string& name : PlacementNames()) {
    const auto policy = MakePlacement(name);
    ASSERT_TRUE(policy.ok()) << name;
    EXPECT_EQ((*policy)->about().name, name);
    EXPECT_NE(std::string((*policy)->about().source), "");
  }
  EXPECT_FALSE(MakePlacement("best").ok());
}

TEST(SPartition, EvensOutHowManyModelsAGpuHas) {
  const Problem p = ProblemOf(plan::SmallModels({9, 1, 1, 1}, {80e9, 80e9}));
  const Assignment a = PlaceBy("s-partition", p);
  EXPECT_EQ(a.On(0).size(), 2u);
  EXPECT_EQ(a.On(1).size(), 2u);
}

TEST(Qlm, TakesTurnsWhereNoTwoWouldFitTogether) {
  const Problem p = ProblemOf(plan::SmallModels({1, 1, 1}, {24e9}));
  const Assignment a = PlaceBy("qlm", p);
  EXPECT_EQ(a.On(0).size(), 3u);
  EXPECT_LT(a.Room(0, plan::Charge::kLeast), 0);
}

TEST(MuxServe, PutsTheBusiestApart) {
  Snapshot s = plan::SmallModels({6, 6, 0.5, 0.5}, {36e9, 36e9});
  for (plan::ModelDemand& m : s.models) m.replicas = 1;
  const Problem p = ProblemOf(s);
  const Assignment a = PlaceBy("muxserve", p);
  EXPECT_NE(a.GroupOf(0), a.GroupOf(1));
}

}  // namespace
}  // namespace fineserve::bench
