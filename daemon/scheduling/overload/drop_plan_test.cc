#include "daemon/scheduling/overload/drop_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace fineserve::overload {
namespace {

// An embedding, four layers, and an output matrix.
const std::vector<Part> kParts = {{10, 0, 0},    {20, 20, .24}, {20, 20, .24},
                                  {20, 20, .24}, {20, 20, .24}, {10, 10, .04}};

TEST(DropOrderTest, ReadsThatHideBestComeFirst) {
  EXPECT_EQ(DropOrder(kParts), (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
  const std::vector<Part> turned(kParts.rbegin(), kParts.rend());
  EXPECT_EQ(DropOrder(turned), (std::vector<size_t>{5, 1, 2, 3, 4, 0}));
}

TEST(LendTest, NoneIsShortNothingIsDropped) {
  const Lending none = Lend(kParts, 0, 0);
  EXPECT_TRUE(none.a.dropped.empty());
  EXPECT_TRUE(none.b.dropped.empty());
}

TEST(LendTest, OnlyTheOneThatIsShortDrops) {
  const Lending lending = Lend(kParts, 25, 0);
  EXPECT_EQ(lending.a.dropped, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(lending.b.dropped.empty());
}

TEST(LendTest, ReadsAreTheBytesByTheLinkAndThePartOfTheWork) {
  const Lending lending = Lend(kParts, 25, 0);
  const sched::PeerReads reads = ReadsOf(lending.a, kParts, 2, 4);
  EXPECT_DOUBLE_EQ(reads.link_us, 10);
  EXPECT_DOUBLE_EQ(reads.work, .24);
  EXPECT_EQ(reads.reread, 4);
}

TEST(LendPropertyTest, EachPartExistsAndNoSideDropsMoreThanItIsShortOf) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 5000; ++round) {
    std::vector<Part> parts(1 + random() % 60);
    uint64_t all = 0, largest = 0;
    for (Part& p : parts) {
      p.bytes = 1 + random() % 100;
      p.step_bytes = random() % 2 * p.bytes;
      p.work = static_cast<double>(random() % 100) / 1000;
      all += p.bytes;
      largest = std::max(largest, p.bytes);
    }
    const uint64_t a = random() % (2 * all), b = random() % (2 * all);
    const Lending lending = Lend(parts, a, b);
    std::set<size_t> dropped(lending.a.dropped.begin(),
                             lending.a.dropped.end());
    for (const size_t i : lending.b.dropped) {
      ASSERT_TRUE(dropped.insert(i).second) << "part " << i << " is lost";
    }
    ASSERT_LT(lending.a.bytes, a + largest);
    ASSERT_LT(lending.b.bytes, b + largest);
    if (lending.a.bytes >= a && lending.b.bytes >= b) continue;
    // Everything is lent, and whoever got something lacks as much.
    ASSERT_EQ(dropped.size(), parts.size());
    const double lacks_a = static_cast<double>(a) - lending.a.bytes;
    const double lacks_b = static_cast<double>(b) - lending.b.bytes;
    if (lending.a.bytes > 0 && lending.b.bytes > 0) {
      ASSERT_LE(std::abs(lacks_a - lacks_b), largest);
    }
  }
}

TEST(MergePropertyTest, EachMergeFreesOneCopy) {
  for (uint32_t n = 1; n <= 12; ++n) {
    for (uint64_t needed = 0; needed <= 1400; needed += 50) {
      std::vector<Group> groups;
      for (uint32_t i = 0; i < n; ++i) groups.push_back({{i}, 1. / (i + 1)});
      const MergePlan plan = MergeGroups(groups, 100, needed);
      const auto merges =
          static_cast<uint32_t>(std::min<uint64_t>(n - 1, (needed + 99) / 100));
      ASSERT_EQ(plan.merges, merges);
      ASSERT_EQ(plan.freed_bytes, merges * 100u);
      std::set<uint32_t> seen;
      for (const Group& g : plan.groups) {
        for (const uint32_t r : g.replicas) ASSERT_TRUE(seen.insert(r).second);
      }
      ASSERT_EQ(seen.size(), n);
      ASSERT_EQ(plan.groups.size(), n - merges);
    }
  }
}

TEST(MergeTest, SmallestGroupsMergeAndOfTheseTheMostLoaded) {
  const MergePlan plan =
      MergeGroups({{{0, 1, 2}, 9}, {{3}, .1}, {{4}, .9}, {{5}, .5}}, 100, 100);
  ASSERT_EQ(plan.groups.size(), 3u);
  EXPECT_EQ(plan.groups[0].replicas, (std::vector<uint32_t>{3}));
  EXPECT_EQ(plan.groups[1].replicas, (std::vector<uint32_t>{4, 5}));
}

}  // namespace
}  // namespace fineserve::overload
