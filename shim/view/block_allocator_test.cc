#include "shim/view/block_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "daemon/contract/abi/block_range.h"

namespace fineserve::shim {
namespace {

using Ids = std::vector<uint32_t>;

// Slabs of 100 blocks, ids v × 100 …
class BlockAllocatorTest : public testing::Test {
 protected:
  BlockAllocatorTest() { EXPECT_TRUE(blocks_.Create(8, 6400, 64)); }

  Ids Take(uint32_t count) {
    Ids ids(count);
    EXPECT_TRUE(blocks_.Allocate(count, ids.data()));
    return ids;
  }
  uint32_t Free(const Ids& ids) {
    return blocks_.Free(static_cast<uint32_t>(ids.size()), ids.data());
  }
  Ids Drained() {
    Ids views(8);
    views.resize(blocks_.TakeDrained(8, views.data()));
    return views;
  }

  BlockAllocator blocks_;
};

TEST_F(BlockAllocatorTest, NothingIsHandedOutWithoutALease) {
  uint32_t id;
  EXPECT_FALSE(blocks_.Allocate(1, &id));
  ASSERT_TRUE(blocks_.Link(3));
  EXPECT_EQ(blocks_.free_blocks(), 100);
  EXPECT_EQ(Take(2), (Ids{300, 301}));
}

TEST_F(BlockAllocatorTest, TooFewBlocksLeaveEverythingAlone) {
  ASSERT_TRUE(blocks_.Link(1));
  Ids ids(101, 7);
  EXPECT_FALSE(blocks_.Allocate(101, ids.data()));
  EXPECT_EQ(ids, Ids(101, 7));
  EXPECT_EQ(blocks_.free_blocks(), 100);
  EXPECT_EQ(Take(100).size(), 100);
}

TEST_F(BlockAllocatorTest, OneCallSpansSlabs) {
  ASSERT_TRUE(blocks_.Link(1));
  ASSERT_TRUE(blocks_.Link(2));
  Ids ids = Take(150);
  EXPECT_EQ(std::set<uint32_t>(ids.begin(), ids.end()).size(), 150);
  EXPECT_EQ(blocks_.UsedBlocks(1) + blocks_.UsedBlocks(2), 150);
}

TEST_F(BlockAllocatorTest, TheDensestSlabServesFirstSoThatTheOtherEmpties) {
  ASSERT_TRUE(blocks_.Link(1));
  ASSERT_TRUE(blocks_.Link(2));
  Ids all = Take(200);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(Free(Ids(all.begin(), all.begin() + 90)), 90);         // slab 1
  EXPECT_EQ(Free(Ids(all.begin() + 100, all.begin() + 110)), 10);  // slab 2
  ASSERT_EQ(blocks_.UsedBlocks(2), 90);  // freed blocks are in their slabs now
  for (const uint32_t id : Take(10)) EXPECT_GE(id, 200) << "not the densest";
  EXPECT_EQ(blocks_.UsedBlocks(1), 10);
}

TEST_F(BlockAllocatorTest, RecentlyFreedBlockIsUsedFirst) {
  ASSERT_TRUE(blocks_.Link(1));
  const Ids ids = Take(3);
  EXPECT_EQ(Free({ids[2], ids[0]}), 2);
  EXPECT_EQ(Take(3), (Ids{ids[0], ids[2], 103}));
}

TEST_F(BlockAllocatorTest, ABlockFreedBeforeItsSlabLeavesIsNotUsedAgain) {
  ASSERT_TRUE(blocks_.Link(1));
  EXPECT_EQ(Free(Take(3)), 3);
  ASSERT_TRUE(blocks_.Leave(1));
  EXPECT_EQ(blocks_.free_blocks(), 0);
  uint32_t id;
  EXPECT_FALSE(blocks_.Allocate(1, &id));
}

TEST_F(BlockAllocatorTest, ABlockThatIsNotAllocatedIsNotTakenBack) {
  ASSERT_TRUE(blocks_.Link(1));
  const Ids ids = Take(3);
  EXPECT_EQ(Free({ids[0], ids[0]}), 1) << "freed twice";
  EXPECT_EQ(Free({0}), 0) << "the engine's scratch";
  EXPECT_EQ(Free({250}), 0) << "an unleased slab's";
  EXPECT_EQ(Free({900}), 0) << "beyond the view";
  EXPECT_EQ(Free({UINT32_MAX}), 0);
  EXPECT_EQ(blocks_.UsedBlocks(1), 2);
}

TEST_F(BlockAllocatorTest, ALeavingSlabHandsOutNothing) {
  ASSERT_TRUE(blocks_.Link(1));
  const Ids ids = Take(5);
  ASSERT_TRUE(blocks_.Leave(1));
  EXPECT_EQ(blocks_.free_blocks(), 0);
  uint32_t id;
  EXPECT_FALSE(blocks_.Allocate(1, &id));
  EXPECT_EQ(Free(ids), 5);
  EXPECT_EQ(blocks_.free_blocks(), 0) << "freed into a leaving slab";
  EXPECT_EQ(Drained(), (Ids{1}));
  EXPECT_TRUE(blocks_.Link(1)) << "it may be leased again";
}

TEST_F(BlockAllocatorTest, ASlabLeavesOnlyBehindTheStepsInFlight) {
  ASSERT_TRUE(blocks_.Link(1));
  const Ids ids = Take(1);
  const uint64_t first = blocks_.BeginStep();
  ASSERT_TRUE(blocks_.Leave(1));
  const uint64_t second = blocks_.BeginStep();
  EXPECT_EQ(Free(ids), 1);  // the second step may still write it
  EXPECT_EQ(Drained(), Ids{});
  blocks_.EndStep(first);
  EXPECT_EQ(Drained(), Ids{});
  blocks_.EndStep(second);
  EXPECT_EQ(Drained(), (Ids{1}));
}

TEST_F(BlockAllocatorTest, AnEmptySlabLeavesBehindTheStepBeforeIt) {
  ASSERT_TRUE(blocks_.Link(1));
  const Ids ids = Take(1);
  const uint64_t step = blocks_.BeginStep();
  EXPECT_EQ(Free(ids), 1);
  ASSERT_TRUE(blocks_.Leave(1));
  EXPECT_EQ(Drained(), Ids{});
  blocks_.EndStep(step);
  EXPECT_EQ(Drained(), (Ids{1}));
}

TEST_F(BlockAllocatorTest, AStepThatHasNotBegunCannotEnd) {
  ASSERT_TRUE(blocks_.Link(1));
  blocks_.EndStep(UINT64_MAX);
  blocks_.BeginStep();
  ASSERT_TRUE(blocks_.Leave(1));
  EXPECT_EQ(Drained(), Ids{});
}

TEST_F(BlockAllocatorTest, LinkingAndLeavingOutOfTurnIsRefused) {
  EXPECT_FALSE(blocks_.Link(0)) << "the scratch is never leased";
  EXPECT_FALSE(blocks_.Link(9));
  EXPECT_FALSE(blocks_.Leave(1));
  ASSERT_TRUE(blocks_.Link(1));
  EXPECT_FALSE(blocks_.Link(1));
  ASSERT_TRUE(blocks_.Leave(1));
  EXPECT_FALSE(blocks_.Leave(1));
  EXPECT_FALSE(blocks_.Link(1));
}

TEST_F(BlockAllocatorTest, DrainedSlabsBeyondTheCapacityStayForTheNextCall) {
  for (uint32_t v = 1; v <= 3; ++v) {
    ASSERT_TRUE(blocks_.Link(v));
    ASSERT_TRUE(blocks_.Leave(v));
  }
  uint32_t two[2];
  EXPECT_EQ(blocks_.TakeDrained(2, two), 2);
  EXPECT_EQ(Drained().size(), 1);
}

TEST(BlockAllocatorCreateTest, ImpossibleViewsAreRefused) {
  EXPECT_FALSE(BlockAllocator().Create(0, 64, 64));
  EXPECT_FALSE(BlockAllocator().Create(1, 64, 65));
  EXPECT_FALSE(BlockAllocator().Create(1, 64, 0));
  EXPECT_FALSE(BlockAllocator().Create(1 << 20, 1 << 20, 16)) << "32-bit ids";
  EXPECT_FALSE(
      BlockAllocator().Create(1, uint64_t{1} << 52, uint64_t{1} << 40));
}

// Compares random operations with a model made of sets.
class Model {
 public:
  Model(uint32_t slabs, uint64_t plane_bytes, uint64_t page_bytes)
      : slabs_(slabs), plane_(plane_bytes), page_(page_bytes) {
    EXPECT_TRUE(blocks_.Create(slabs, plane_bytes, page_bytes));
  }

  void Run(std::mt19937_64* random, int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      const uint32_t v = 1 + (*random)() % slabs_;
      switch ((*random)() % 8) {
        case 0:
          Link(v);
          break;
        case 1:
          if ((*random)() % 3 == 0) Leave(v);
          break;
        case 2:
        case 3:
        case 4:
          Allocate((*random)() % 70);
          break;
        case 5:
        case 6:
          Free(random, (*random)() % 60);
          break;
        case 7:
          Step(random);
          break;
      }
      Check();
    }
  }

 private:
  struct Leaving {
    uint64_t barrier;
  };

  std::set<uint32_t> All(uint32_t v) const {
    const auto range = abi::BlocksOfView(v, plane_, page_);
    std::set<uint32_t> ids;
    for (uint64_t id = range.first; id < range.end; ++id) {
      ids.insert(static_cast<uint32_t>(id));
    }
    return ids;
  }

  void Link(uint32_t v) {
    const bool may = linked_.count(v) == 0 && leaving_.count(v) == 0;
    ASSERT_EQ(blocks_.Link(v), may);
    if (may) linked_[v] = All(v);
  }

  void Leave(uint32_t v) {
    ASSERT_EQ(blocks_.Leave(v), linked_.count(v) != 0);
    if (linked_.erase(v) != 0) leaving_[v] = {begun_};
  }

  void Allocate(uint32_t count) {
    Ids ids(count);
    ASSERT_EQ(blocks_.Allocate(count, ids.data()), count <= FreeCount());
    if (count > FreeCount()) return;
    for (const uint32_t id : ids) {
      const uint32_t v = ViewOf(id);
      ASSERT_TRUE(linked_.count(v)) << "block " << id << " of slab " << v;
      ASSERT_EQ(linked_[v].erase(id), 1) << "block " << id << " is in use";
      used_[id] = v;
    }
  }

  void Free(std::mt19937_64* random, uint32_t count) {
    Ids ids;
    for (; count > 0 && !used_.empty(); --count) {
      auto it = used_.lower_bound(
          static_cast<uint32_t>((*random)() % (used_.rbegin()->first + 1)));
      ids.push_back(it->first);
      if (linked_.count(it->second)) {
        linked_[it->second].insert(it->first);
      } else {
        leaving_[it->second].barrier = begun_;
      }
      used_.erase(it);
    }
    ASSERT_EQ(blocks_.Free(static_cast<uint32_t>(ids.size()), ids.data()),
              ids.size());
    if (ids.empty()) return;
    ASSERT_EQ(blocks_.Free(1, ids.data()), 0) << "freed twice";
  }

  void Step(std::mt19937_64* random) {
    if (begun_ - ended_ < 2 && (*random)() % 2 == 0) {
      ASSERT_EQ(blocks_.BeginStep(), ++begun_);
    } else if (ended_ < begun_) {
      blocks_.EndStep(++ended_);
    }
    Ids views(slabs_);
    views.resize(blocks_.TakeDrained(slabs_, views.data()));
    std::set<uint32_t> want;
    for (const auto& [v, leaving] : leaving_) {
      const bool used =
          std::any_of(used_.begin(), used_.end(),
                      [&, v = v](auto& u) { return u.second == v; });
      if (!used && leaving.barrier <= ended_) want.insert(v);
    }
    ASSERT_EQ(std::set<uint32_t>(views.begin(), views.end()), want);
    for (const uint32_t v : want) leaving_.erase(v);
  }

  void Check() {
    ASSERT_EQ(blocks_.free_blocks(), FreeCount());
    for (uint32_t v = 1; v <= slabs_; ++v) {
      const auto used = std::count_if(used_.begin(), used_.end(),
                                      [v](auto& u) { return u.second == v; });
      ASSERT_EQ(blocks_.UsedBlocks(v), used);
    }
  }

  uint32_t FreeCount() const {
    size_t count = 0;
    for (const auto& [v, ids] : linked_) count += ids.size();
    return static_cast<uint32_t>(count);
  }

  uint32_t ViewOf(uint32_t id) const {
    return static_cast<uint32_t>(id * page_ / plane_);
  }

  const uint32_t slabs_;
  const uint64_t plane_, page_;
  BlockAllocator blocks_;
  std::map<uint32_t, std::set<uint32_t>> linked_;  // free ids
  std::map<uint32_t, Leaving> leaving_;
  std::map<uint32_t, uint32_t> used_;  // id -> view index
  uint64_t begun_ = 0, ended_ = 0;
};

TEST(BlockAllocatorProperty, RandomOperationsAgreeWithSets) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i) {
    // Blocks fit exactly or straddle; a slab has from one block to several
    // words' worth.
    const uint64_t page = 1 + random() % 5000;
    const uint64_t plane = page * (1 + random() % 200) + random() % page;
    Model(1 + random() % 12, plane, page).Run(&random, 400);
  }
}

// In large views, too, the rounded quotient of doubles must be corrected.
TEST(BlockAllocatorProperty, EveryIdOfALargeViewFindsItsSlab) {
  struct View {
    uint64_t page, plane;
    uint32_t slabs;
  };
  constexpr uint64_t k2MiB = 2 << 20;
  for (const auto& [page, plane, slabs] :
       {View{33792, k2MiB, 4000}, View{17408, k2MiB, 4000},
        View{18432, k2MiB, 4000}, View{73728, k2MiB, 4000},
        View{65536, k2MiB, 4000}, View{3, 100'000, 300},
        // 49 × (1 / 49) is less than 1 in doubles.
        View{64, 49 * 64, 4000}}) {
    BlockAllocator blocks;
    ASSERT_TRUE(blocks.Create(slabs, plane, page));
    for (uint32_t v = 1; v <= slabs; ++v) ASSERT_TRUE(blocks.Link(v));
    Ids ids(blocks.free_blocks());
    ASSERT_TRUE(blocks.Allocate(blocks.free_blocks(), ids.data()));
    for (const uint32_t id : ids) {
      const uint32_t v = static_cast<uint32_t>(id * page / plane);
      const uint32_t before = blocks.UsedBlocks(v);
      ASSERT_EQ(blocks.Free(1, &id), 1) << "page " << page << " id " << id;
      ASSERT_EQ(blocks.UsedBlocks(v), before - 1);
    }
  }
}

}  // namespace
}  // namespace fineserve::shim
