#include "daemon/slab/share_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace fineserve::slab {
namespace {

using Counts = std::vector<uint32_t>;

struct TargetCase {
  std::string name;
  uint32_t slabs;
  std::vector<Claim> claims;  // floor, cap, wanted, held
  Counts targets;
};

class FairTargetsTest : public ::testing::TestWithParam<TargetCase> {};

TEST_P(FairTargetsTest, AreAsExpected) {
  EXPECT_EQ(FairTargets(GetParam().slabs, GetParam().claims),
            GetParam().targets);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, FairTargetsTest,
    ::testing::Values(
        TargetCase{"NobodyThere", 10, {}, {}},
        TargetCase{"AllWantsFit", 10, {{1, 10, 3, 0}, {1, 10, 5, 0}}, {3, 5}},
        TargetCase{"IdleEngineKeepsItsFloor",
                   10,
                   {{2, 10, 0, 5}, {1, 10, 10, 0}},
                   {2, 8}},
        TargetCase{"ContestedRemainderIsHalved",
                   10,
                   {{2, 10, 10, 0}, {2, 10, 10, 0}},
                   {5, 5}},
        TargetCase{"LargerFloorStaysAhead",
                   11,
                   {{5, 11, 11, 0}, {2, 11, 11, 0}},
                   {7, 4}},
        TargetCase{"SmallWantLeavesMoreToTheOthers",
                   12,
                   {{1, 12, 2, 0}, {1, 12, 12, 0}, {1, 12, 12, 0}},
                   {2, 5, 5}},
        TargetCase{"CapHolds", 10, {{1, 3, 10, 0}, {1, 10, 10, 0}}, {3, 7}},
        TargetCase{
            "OddSlabGoesToTheFirst", 5, {{0, 5, 5, 0}, {0, 5, 5, 0}}, {3, 2}},
        TargetCase{"FloorsThatDoNotFitAreShared",
                   4,
                   {{3, 9, 9, 0}, {3, 9, 9, 0}},
                   {2, 2}}),
    [](const auto& param) { return param.param.name; });

TEST(PlanRebalanceTest, KeepsWhatNobodyElseWants) {
  const std::vector<Claim> claims = {{1, 10, 2, 8}, {1, 10, 2, 2}};
  const Rebalance plan =
      PlanRebalance(0, 0, 0, claims, FairTargets(10, claims));
  EXPECT_EQ(plan.ask_back, 0u);
  EXPECT_EQ(plan.grants, (Counts{0, 0}));
}

TEST(PlanRebalanceTest, AsksBackOnlyWhatFreeAndComingSlabsDoNotCover) {
  const std::vector<Claim> claims = {{1, 10, 2, 6}, {1, 10, 9, 1}};
  // Targets 2 and 8: 7 are missing, 1 is free, 2 are coming.
  const Rebalance plan =
      PlanRebalance(1, 2, 0, claims, FairTargets(10, claims));
  EXPECT_EQ(plan.grants, (Counts{0, 1}));
  EXPECT_EQ(plan.ask_back, 4u);
  EXPECT_EQ(plan.spare, (Counts{4, 0}));
}

TEST(PlanRebalanceTest, WhoHasLeastAboveItsFloorIsGrantedFirst) {
  const std::vector<Claim> claims = {{1, 10, 10, 3}, {1, 10, 10, 0}};
  const Rebalance plan = PlanRebalance(4, 0, 0, claims, {5, 5});
  EXPECT_EQ(plan.grants, (Counts{1, 3}));
}

TEST(PlanRebalanceTest, FloorsComeBeforeEverythingElse) {
  const std::vector<Claim> claims = {{1, 10, 10, 2}, {6, 10, 10, 4}};
  const Rebalance plan = PlanRebalance(2, 0, 0, claims, {4, 6});
  EXPECT_EQ(plan.grants, (Counts{0, 2}));
}

TEST(PlanRebalanceTest, ReservedSlabsAreNotGrantedAndAreAskedBackFor) {
  // 8 slabs, 5 of them for others: 3 stay for the claims.
  const std::vector<Claim> claims = {{1, 10, 10, 6}, {1, 10, 10, 0}};
  const Rebalance plan = PlanRebalance(2, 0, 5, claims, FairTargets(3, claims));
  EXPECT_EQ(plan.grants, (Counts{0, 0}));
  EXPECT_EQ(plan.ask_back, 4u);
}

// Random claims: no target breaks its bounds or the pool's, nobody could have
// more without somebody poorer having less, and a plan never gives out or asks
// for more than there is.
TEST(SharePolicyPropertyTest, TargetsAreFairAndPlansKeepTheBounds) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto upto = [&](uint32_t n) {
    return static_cast<uint32_t>(random() % (n + 1));
  };
  for (int round = 0; round < 20000; ++round) {
    const uint32_t slabs = upto(40);
    std::vector<Claim> claims(1 + upto(5));
    uint32_t floors = 0;
    uint32_t held = 0;
    for (Claim& c : claims) {
      c.floor = upto(slabs - floors);
      floors += c.floor;
      c.cap = c.floor + upto(20);
      c.wanted = upto(50);
      c.held = std::min(c.cap, upto(slabs - held));
      held += c.held;
    }
    const Counts targets = FairTargets(slabs, claims);
    const uint32_t sum = std::accumulate(targets.begin(), targets.end(), 0u);
    ASSERT_LE(sum, slabs);
    for (size_t i = 0; i < claims.size(); ++i) {
      const uint32_t most =
          std::max(claims[i].floor, std::min(claims[i].wanted, claims[i].cap));
      ASSERT_GE(targets[i], claims[i].floor);
      ASSERT_LE(targets[i], most);
      if (targets[i] == most) continue;
      ASSERT_EQ(sum, slabs) << "slabs are left and " << i << " wants more";
      for (size_t j = 0; j < claims.size(); ++j) {
        ASSERT_LE(targets[j] - claims[j].floor,
                  targets[i] - claims[i].floor + 1)
            << j << " has more of the contested slabs than " << i;
      }
    }
    const uint32_t free = upto(slabs - held);
    const Rebalance plan = PlanRebalance(free, 0, 0, claims, targets);
    uint32_t granted = 0;
    uint32_t spare = 0;
    for (size_t i = 0; i < claims.size(); ++i) {
      granted += plan.grants[i];
      spare += plan.spare[i];
      ASSERT_LE(claims[i].held + plan.grants[i],
                std::max(targets[i], claims[i].held));
      ASSERT_LE(plan.spare[i], claims[i].held);
    }
    ASSERT_LE(granted, free);
    ASSERT_LE(plan.ask_back, spare);
  }
}

}  // namespace
}  // namespace fineserve::slab
