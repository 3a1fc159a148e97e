#include "tools/lab/sim/simulated_engine/slab_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fineserve::sim {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SlabBlocksTest, FillsOneSlabAndThenTheDensest) {
  SlabBlocks kv(3);
  for (uint32_t slab = 0; slab < 3; ++slab) kv.Link(slab, 4);
  SlabBlocks::Runs a, b, c;
  ASSERT_TRUE(kv.Allocate(4, &a));
  ASSERT_TRUE(kv.Allocate(1, &b));
  EXPECT_EQ(kv.UsedBlocks(2), 4u) << "the last that came";
  EXPECT_EQ(kv.UsedBlocks(1), 1u);
  ASSERT_TRUE(kv.Allocate(2, &c));
  EXPECT_EQ(kv.UsedBlocks(1), 3u);
  EXPECT_EQ(kv.UsedBlocks(0), 0u) << "the emptiest stays empty";
}

TEST(SlabBlocksTest, EachStepLooksForTheDensestAgain) {
  SlabBlocks kv(2);
  for (uint32_t slab = 0; slab < 2; ++slab) kv.Link(slab, 8);
  SlabBlocks::Runs full, begun, next;
  ASSERT_TRUE(kv.Allocate(8, &full));
  ASSERT_TRUE(kv.Allocate(1, &begun));
  SlabBlocks::Runs three = {{1, 3}};
  full[0].blocks -= 3;
  kv.Free(&three);
  ASSERT_TRUE(kv.Allocate(1, &next));
  EXPECT_EQ(kv.UsedBlocks(0), 2u) << "within a step it goes on with its slab";
  kv.BeginStep();
  ASSERT_TRUE(kv.Allocate(1, &next));
  EXPECT_EQ(kv.UsedBlocks(1), 6u);
}

TEST(SlabBlocksTest, SlabsOfOneShelfAreAlikeAndTheLastOnItIsTaken) {
  SlabBlocks kv(2);
  for (uint32_t slab = 0; slab < 2; ++slab) kv.Link(slab, 8);
  SlabBlocks::Runs in_1, in_0, next;
  ASSERT_TRUE(kv.Allocate(8, &in_1));
  ASSERT_TRUE(kv.Allocate(3, &in_0));
  kv.BeginStep();  // slab 0 has five free blocks
  SlabBlocks::Runs seven = {{1, 7}};
  in_1[0].blocks -= 7;
  kv.Free(&seven);  // four to seven are one shelf, and seven come last
  ASSERT_TRUE(kv.Allocate(1, &next));
  EXPECT_EQ(kv.UsedBlocks(1), 2u);
}

TEST(SlabBlocksTest, FailedAllocationChangesNothingAndIsRemembered) {
  SlabBlocks kv(1);
  kv.Link(0, 4);
  SlabBlocks::Runs a;
  EXPECT_FALSE(kv.Allocate(5, &a));
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(kv.free_blocks(), 4u);
  EXPECT_EQ(kv.TakeShortfall(), 5u);
  EXPECT_EQ(kv.TakeShortfall(), 0u);
}

TEST(SlabBlocksTest, LeavingSlabHandsOutNothingAndDrains) {
  SlabBlocks kv(2);
  kv.Link(0, 4);
  SlabBlocks::Runs a, b;
  ASSERT_TRUE(kv.Allocate(2, &a));
  kv.Link(1, 4);
  kv.Leave(0);
  EXPECT_EQ(kv.leaving_blocks(), 2u);
  ASSERT_TRUE(kv.Allocate(4, &b));
  EXPECT_EQ(kv.UsedBlocks(1), 4u);
  EXPECT_FALSE(kv.Allocate(1, &b));
  EXPECT_THAT(kv.TakeDrained(), IsEmpty());
  kv.Free(&a);
  EXPECT_THAT(kv.TakeDrained(), ElementsAre(0u));
  EXPECT_EQ(kv.leaving_blocks(), 0u);
  kv.Free(&b);
  kv.Leave(1);
  EXPECT_THAT(kv.TakeDrained(), ElementsAre(1u)) << "it was empty";
}

TEST(SlabBlocksTest, CountsAgreeWithARandomHistory) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    SlabBlocks kv(8);
    std::map<int, SlabBlocks::Runs> held;
    uint64_t used = 0;
    for (int i = 0; i < 3000; ++i) {
      const auto slab = static_cast<uint32_t>(random() % 8);
      switch (random() % 5) {
        case 0:
          if (!kv.linked(slab) && kv.UsedBlocks(slab) == 0) kv.Link(slab, 16);
          break;
        case 1:
          if (kv.linked(slab) && random() % 8 == 0 &&
              kv.leaving_blocks() == 0) {
            kv.Leave(slab);
          }
          break;
        case 2:
          if (!held.empty()) {
            for (const auto& run : held.begin()->second) used -= run.blocks;
            kv.Free(&held.begin()->second);
            held.erase(held.begin());
          }
          break;
        default: {
          const auto count = static_cast<uint32_t>(1 + random() % 20);
          const bool fits = count <= kv.free_blocks();
          ASSERT_EQ(kv.Allocate(count, &held[i]), fits);
          if (fits) used += count;
        }
      }
      ASSERT_EQ(kv.used_blocks(), used) << "seed " << seed;
      uint64_t of_slabs = 0;
      for (uint32_t s = 0; s < 8; ++s) of_slabs += kv.UsedBlocks(s);
      ASSERT_EQ(of_slabs, used) << "seed " << seed;
      kv.TakeDrained();
    }
  }
}

}  // namespace
}  // namespace fineserve::sim
