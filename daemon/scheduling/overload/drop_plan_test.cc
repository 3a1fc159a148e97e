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
  for (const Loans& loans : Lend(kParts, {0, 0, 0}, Lending(3))) {
    EXPECT_TRUE(loans.all.empty());
  }
}

TEST(LendTest, OnlyTheOneThatIsShortDrops) {
  const Lending lending = Lend(kParts, {25, 0}, Lending(2));
  EXPECT_EQ(lending[0].all, (std::vector<Loan>{{0, 1}, {1, 1}}));
  EXPECT_TRUE(lending[1].all.empty());
}

TEST(LendTest, TwoHaveACopyTogetherAndThreeToo) {
  const Lending two = Lend(kParts, {1000, 1000}, Lending(2));
  EXPECT_EQ(two[0].bytes + two[1].bytes, 100u);
  const Lending three = Lend(kParts, {1000, 1000, 1000}, Lending(3));
  EXPECT_EQ(three[0].bytes + three[1].bytes + three[2].bytes, 200u);
  for (const Loans& loans : three) EXPECT_NEAR(loans.bytes, 67, 20);
}

TEST(LendTest, OneThatTakesNoPartNeitherDropsNorLends) {
  const Lending lending = Lend(kParts, {1000, absl::nullopt, 0}, Lending(3));
  EXPECT_EQ(lending[0].bytes, 100u);
  for (const Loan& loan : lending[0].all) EXPECT_EQ(loan.lender, 2u);
  EXPECT_TRUE(lending[1].all.empty());
}

// Tests engines that drop all or nothing, so that a copy is a single part.
TEST(LendTest, OfWholeCopiesAnotherOneIsReadUnlessTheOnlyOneLeftIsRead) {
  const std::vector<Part> copy = {{100, 100, 1}};
  const Lending one = Lend(copy, {30, 0, 0, 0}, Lending(4));
  EXPECT_EQ(one[0].all, (std::vector<Loan>{{0, 1}}));
  const Lending four = Lend(copy, {0, 0, 30, 0}, one);
  EXPECT_EQ(four[2].all, (std::vector<Loan>{{0, 3}}));
  const Lending three = Lend(copy, {0, 0, 30, absl::nullopt}, one);
  EXPECT_EQ(three[2].all, (std::vector<Loan>{{0, 1}}));
  // A lender drops nothing, and a replica that has dropped its copy lends
  // nothing.
  EXPECT_EQ(Lend(copy, {0, 30, 0, 0}, one)[1].bytes, 0u);
  EXPECT_EQ(
      Lend(copy, {0, 0, 30}, {{{{0, 9}}, 100}, {{{0, 9}}, 100}, {}})[2].bytes,
      0u);
}

TEST(ReadsTest, BytesByTheLinkAndThePartOfTheWork) {
  const auto reads = ReadsOf(Lend(kParts, {25, 0}, Lending(2)), kParts, 2, 4);
  EXPECT_DOUBLE_EQ(reads[0].link_us, 10);
  EXPECT_DOUBLE_EQ(reads[0].work, .24);
  EXPECT_EQ(reads[0].reread, 4);
  EXPECT_EQ(reads[1].link_us, 0);
}

TEST(ReadsTest, ThoseWhoReadFromOneShareItsLink) {
  const std::vector<Part> parts(4, {100, 100, .25});
  // Two read all from the third.
  const Lending alike = {{{{0, 2}, {1, 2}}, 200}, {{{0, 2}, {1, 2}}, 200}, {}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_DOUBLE_EQ(ReadsOf(alike, parts, 1, 1)[i].link_us, 400);
  }
  // The replica that reads less has ended by then.
  const Lending unlike = {{{{0, 2}}, 100}, {{{0, 2}, {1, 2}}, 200}, {}};
  EXPECT_DOUBLE_EQ(ReadsOf(unlike, parts, 1, 1)[0].link_us, 200);
  EXPECT_DOUBLE_EQ(ReadsOf(unlike, parts, 1, 1)[1].link_us, 300);
  // Four replicas keep a quarter each, and all links are equally busy.
  Lending four(4);
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t lender = 0; lender < 4; ++lender) {
      if (lender != i) four[i].all.push_back({lender, lender});
    }
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(ReadsOf(four, parts, 1, 1)[i].link_us, 300);
  }
}

TEST(LendPropertyTest, EachPartExistsAndNoneDropsMoreThanItIsShortOf) {
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
    const size_t n = 2 + random() % 6;
    std::vector<absl::optional<uint64_t>> wanted(n);
    for (auto& w : wanted) w = random() % (2 * all);
    const Lending lending = Lend(parts, wanted, Lending(n));
    std::vector<std::set<size_t>> dropped(n);
    bool some_lack = false;
    for (size_t i = 0; i < n; ++i) {
      uint64_t bytes = 0;
      for (const Loan& loan : lending[i].all) {
        ASSERT_TRUE(dropped[i].insert(loan.part).second);
        bytes += parts[loan.part].bytes;
      }
      ASSERT_EQ(bytes, lending[i].bytes);
      ASSERT_LT(bytes, *wanted[i] + largest);
      some_lack = some_lack || bytes < *wanted[i];
    }
    size_t copies = 0;
    for (size_t i = 0; i < n; ++i) {
      copies += parts.size() - dropped[i].size();
      for (const Loan& loan : lending[i].all) {
        ASSERT_NE(loan.lender, i);
        ASSERT_FALSE(dropped[loan.lender].count(loan.part))
            << "part " << loan.part << " is lost";
      }
    }
    // Two replicas keep exactly one copy of each part between them. If both got
    // something, the amounts that they lack are about equal.
    if (n != 2 || !some_lack) continue;
    ASSERT_EQ(copies, parts.size());
    const double lacks_a = static_cast<double>(*wanted[0]) - lending[0].bytes;
    const double lacks_b = static_cast<double>(*wanted[1]) - lending[1].bytes;
    if (lending[0].bytes > 0 && lending[1].bytes > 0) {
      ASSERT_LE(std::abs(lacks_a - lacks_b), largest);
    }
  }
}

// Many equal parts, like the layers of a model: one copy of each part is left,
// and no link is much busier than another.
TEST(LendPropertyTest, GroupLeavesOneCopyAndIsBalanced) {
  const std::vector<Part> parts(48, {100, 100, 1. / 48});
  for (uint32_t n = 2; n <= 8; ++n) {
    // Drops all at once, and bit by bit as queues grow.
    for (const uint64_t bits : {1, 10}) {
      Lending lending(n);
      for (uint64_t bit = 1; bit <= bits; ++bit) {
        const std::vector<absl::optional<uint64_t>> wanted(n,
                                                           4800 * bit / bits);
        lending = Lend(parts, wanted, lending);
      }
      uint64_t all = 0;
      for (const Loans& loans : lending) all += loans.bytes;
      EXPECT_EQ(all, 4800u * (n - 1)) << n << " replicas, " << bits;
      for (const sched::PeerReads& reads : ReadsOf(lending, parts, 1, 1)) {
        EXPECT_LT(reads.link_us, 1.3 * 4800 * (n - 1) / n);
      }
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
