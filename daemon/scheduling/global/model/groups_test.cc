#include "daemon/scheduling/global/model/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/scheduling/global/testdata/apex_profiles.h"

namespace fineserve::plan {
namespace {

using ::testing::ElementsAre;

using Names = std::vector<std::string>;

// Two nodes, of four and two GPUs; `a` needs two GPUs, `b` and `c` one.
Problem TwoNodeProblem(const Names& pins_of_b = {},
                       const std::vector<Names>& groups_of_a = {}) {
  Snapshot s;
  s.profiles = Tp1Profiles();
  Profile halved = s.profiles[0];
  halved.tp = 2;
  s.profiles.push_back(halved);
  for (const char* name : {"a", "b", "c"}) {
    ModelDemand m;
    m.name = name;
    m.architecture = halved.architecture;
    m.quantisation = halved.quantisation;
    m.tp = m.name == "a" ? 2 : 1;
    m.rate = 0.1;
    m.prompt_tokens = m.output_tokens = 200;
    m.slo_ttft_s = 10;
    if (m.name == "b") m.pins = pins_of_b;
    if (m.name == "a") m.groups = groups_of_a;
    s.models.push_back(m);
  }
  for (const char* name : {"g0", "g1", "g2", "g3"}) {
    s.gpus.push_back({name, "n0", 80e9});
  }
  for (const char* name : {"g4", "g5"}) s.gpus.push_back({name, "n1", 80e9});
  return *MakeProblem(s, ProblemOptions());
}

std::vector<Group> GroupsOf(const Assignment& a, uint32_t replica) {
  std::vector<Group> groups;
  ForEachGroup(a, replica, Charge::kLeast,
               [&](const Group& g) { groups.push_back(g); });
  return groups;
}

TEST(Groups, InterchangeableGpusAreCombinedOnce) {
  const Problem p = TwoNodeProblem();
  Assignment a(p);
  EXPECT_THAT(GroupsOf(a, 0), ElementsAre(Group{0, 1}, Group{4, 5}));
  a.Put(1, {2});
  EXPECT_THAT(GroupsOf(a, 0),
              ElementsAre(Group{0, 1}, Group{0, 2}, Group{4, 5}));
}

TEST(Groups, AGpuThatAnotherModelIsPinnedToIsNotInterchangeable) {
  const Problem p = TwoNodeProblem({"g3"});
  const Assignment a(p);
  EXPECT_THAT(GroupsOf(a, 0),
              ElementsAre(Group{0, 1}, Group{0, 3}, Group{4, 5}));
  EXPECT_THAT(GroupsOf(a, 1), ElementsAre(Group{3}));
}

TEST(Groups, ListedGroupsAreTheOnlyOnes) {
  const Problem p =
      TwoNodeProblem({}, {{"g2", "g0"}, {"g1", "g3"}, {"g5", "g4"}});
  Assignment a(p);
  EXPECT_THAT(GroupsOf(a, 0),
              ElementsAre(Group{0, 2}, Group{1, 3}, Group{4, 5}));
  EXPECT_FALSE(p.MayUse(p.replicas[0], Group{0, 1}));
  EXPECT_TRUE(p.MayUse(p.replicas[1], Group{0})) << "another model";
  std::vector<Group> choices;
  ForEachChoice(p, p.replicas[0], [&](absl::Span<const uint32_t> gpus) {
    choices.emplace_back(gpus.begin(), gpus.end());
  });
  EXPECT_THAT(choices, ElementsAre(Group{0, 2}, Group{1, 3}, Group{4, 5}));
}

TEST(Groups, NoGroupSpansNodes) {
  const Problem p = TwoNodeProblem();
  Assignment a(p);
  for (const Group& g : GroupsOf(a, 0)) {
    EXPECT_EQ(p.node_of[g.front()], p.node_of[g.back()]);
  }
}

}  // namespace
}  // namespace fineserve::plan
