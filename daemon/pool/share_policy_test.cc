#include "daemon/pool/share_policy.h"

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

TEST(NextToGrantTest, EngineWithLeastAboveItsFloorComesFirst) {
  EXPECT_EQ(NextToGrant({{1, 9, 9, 3}, {1, 9, 9, 0}}, {5, 5}, {false, false}),
            1u);
  EXPECT_EQ(NextToGrant({{1, 9, 9, 2}, {6, 9, 9, 4}}, {4, 6}, {false, false}),
            1u)
      << "a floor comes before everything else";
}

TEST(NextToGrantTest, NoneAtItsTargetAndNoneBlocked) {
  const std::vector<Claim> claims = {{1, 9, 9, 3}, {1, 9, 9, 0}};
  EXPECT_EQ(NextToGrant(claims, {5, 0}, {false, false}), 0u);
  EXPECT_EQ(NextToGrant(claims, {5, 5}, {false, true}), 0u);
  EXPECT_EQ(NextToGrant(claims, {3, 5}, {false, true}), 2u);
}

using Slabs = std::vector<SlabId>;

// Returns the slabs of claim 0 from slab 0 on, each with the number of used
// blocks that `used` gives.
std::vector<Candidate> CandidatesOf(const Counts& used) {
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < used.size(); ++i) {
    candidates.push_back({SlabId{i}, used[i], 0});
  }
  return candidates;
}

TEST(ChooseAskBacksTest, CheapestFirst) {
  EXPECT_EQ(ChooseAskBacks({{SlabId{5}, 2}}, {}, CandidatesOf({9, 1, 9, 0, 9}),
                           {{5}}),
            (Slabs{SlabId{3}, SlabId{1}}));
}

TEST(ChooseAskBacksTest, OnlyForWhatIsNotComing) {
  EXPECT_EQ(ChooseAskBacks({{SlabId{9}, 3}}, {SlabId{7}, SlabId{8}},
                           CandidatesOf({0, 0, 0, 0, 0}), {{5}})
                .size(),
            1u);
}

TEST(ChooseAskBacksTest, OnlyWhatAClaimCanSpare) {
  EXPECT_EQ(
      ChooseAskBacks({{SlabId{5}, 4}}, {}, CandidatesOf({0, 0, 0, 0, 0}), {{2}})
          .size(),
      2u);
}

TEST(ChooseAskBacksTest, SlabsThatTheNeedyCannotUseAreLeftAlone) {
  EXPECT_EQ(ChooseAskBacks({{SlabId{2}, 1}}, {SlabId{4}},
                           CandidatesOf({9, 8, 0, 0}), {{5}}),
            (Slabs{SlabId{1}}));
}

TEST(ChooseAskBacksTest, EngineThatCanUseFewestChoosesFirst) {
  // Slab 0 is cheapest for both needs, but the second need can have no other
  // slab.
  EXPECT_EQ(ChooseAskBacks({{SlabId{3}, 1}, {SlabId{1}, 1}}, {},
                           CandidatesOf({0, 5, 7}), {{5}}),
            (Slabs{SlabId{0}, SlabId{1}}));
}

TEST(ChooseAskBacksTest, AnEngineOnSeveralGpusTakesOnlyWhatItWishesFor) {
  const Need need = {SlabId{4}, 2, {false, true, false, true}};
  EXPECT_EQ(ChooseAskBacks({need}, {SlabId{0}, SlabId{1}},
                           CandidatesOf({0, 9, 0, 5}), {{5}}),
            (Slabs{SlabId{3}}));
}

TEST(ChooseAskBacksTest, ItTakesFromOneThatHasTwoMoreAndMoreThanItsFloor) {
  Need need = {SlabId{4}, 1, {true, true, true, true}, /*open=*/2};
  const auto taken = [&](const Giver& giver) {
    return ChooseAskBacks({need}, {}, CandidatesOf({0, 0, 0, 0}), {giver})
        .size();
  };
  EXPECT_EQ(taken({0, /*open=*/4, /*floor=*/1}), 1u);
  EXPECT_EQ(taken({0, /*open=*/3, /*floor=*/1}), 0u);
  EXPECT_EQ(taken({0, /*open=*/4, /*floor=*/4}), 0u);
  need.wished.clear();  // an engine on one GPU can use what is free
  EXPECT_EQ(taken({0, /*open=*/4, /*floor=*/1}), 0u);
}

// Random claims: every target keeps within its own bounds and the pool's, and
// no claim could have more without a poorer one having less.
TEST(SharePolicyPropertyTest, TargetsAreFairAndKeepTheBounds) {
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
  }
}

}  // namespace
}  // namespace fineserve::slab
