#include "daemon/pool/auto_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "daemon/contract/abi/byte_size.h"

namespace fineserve::slab {
namespace {

using abi::kMiB;
constexpr uint64_t kSlab = 32 * kMiB;
constexpr uint64_t kHeadroom = 8 * kSlab;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kProcess = 4711;

class AutoSizeTest : public ::testing::Test {
 protected:
  AutoSizeTest() {
    sight_.free_bytes = 20 * kSlab;
    sight_.present = sight_.wanted = 40;
    sight_.least = 4;
    sight_.most = 100;
  }
  uint32_t Choose() { return sight_.wanted = size_.Choose(sight_, now_ns_); }
  // Lets the pool reach its wanted size, and frees the memory that it gave up.
  void Settle() {
    sight_.free_bytes += sight_.present * kSlab;
    sight_.present = sight_.wanted;
    sight_.free_bytes -= sight_.present * kSlab;
  }
  void Wait(uint64_t ns) { now_ns_ += ns; }
  // Lets the pool lack slabs and give five to a process, which has received
  // them.
  void GiveFive(bool starts) {
    sight_.free_bytes = kSlab;
    sight_.tight = true;
    size_.Ask(kProcess, 5 * kSlab, starts, now_ns_);
    EXPECT_EQ(Choose(), 35u);
    Settle();
    size_.Served(kProcess);
  }

  AutoSize size_{kSlab, kHeadroom};
  SizeSight sight_;
  uint64_t now_ns_ = 1000 * kSecond;
};

TEST_F(AutoSizeTest, StaysAsItIsWithoutAWish) {
  for (int i = 0; i < 100; ++i, Wait(kSecond)) EXPECT_EQ(Choose(), 40u);
}

TEST_F(AutoSizeTest, GrowsStepByStepDownToTheHeadroomWhileSlabsAreShort) {
  sight_.tight = true;
  EXPECT_EQ(Choose(), 45u);  // an eighth
  Settle();
  EXPECT_EQ(Choose(), 50u);
  Settle();
  EXPECT_EQ(Choose(), 52u);
  Settle();
  EXPECT_EQ(sight_.free_bytes, kHeadroom);
  EXPECT_EQ(Choose(), 52u);
}

// Each slab that the pool gives up is enough for two allocations, and the
// engine does not ask for the second one.
TEST_F(AutoSizeTest, EngineThatLoadsGetsSlabAfterSlabAtOnce) {
  constexpr uint64_t kHalf = kSlab / 2;
  sight_.free_bytes = 0;
  for (uint32_t given = 1; given <= 20; ++given, Wait(kSecond / 50)) {
    size_.Ask(kProcess, kHalf, /*starts=*/true, now_ns_);
    EXPECT_EQ(Choose(), 40 - given);
    Settle();
    sight_.free_bytes = 0;
    size_.Served(kProcess);
  }
}

// The pool had begun to give slabs up for the headroom when the engine asked.
TEST_F(AutoSizeTest, SlabsForTheHeadroomAreNotCountedForAnEngineThatAsks) {
  sight_.idle = 36;
  sight_.free_bytes = 0;
  ASSERT_EQ(Choose(), 32u);
  size_.Ask(kProcess, kSlab / 2, /*starts=*/true, now_ns_);
  Settle();
  EXPECT_EQ(Choose(), 32u);
  sight_.free_bytes = 0;  // something else took it
  Wait(2 * kSecond);
  size_.Ask(kProcess, kSlab / 2, /*starts=*/true, now_ns_);
  EXPECT_LT(Choose(), 32u);
}

TEST_F(AutoSizeTest, GrowthThatHasBegunGoesOn) {
  sight_.tight = true;
  EXPECT_EQ(Choose(), 45u);
  sight_.tight = false;
  sight_.present = 42;
  EXPECT_EQ(Choose(), 45u);
}

TEST_F(AutoSizeTest, NeverGrowsBeyondItsTable) {
  sight_.tight = true;
  sight_.most = 42;
  EXPECT_EQ(Choose(), 42u);
}

TEST_F(AutoSizeTest, DoesNotGrowWhileAnEngineStarts) {
  sight_.tight = sight_.starting = true;
  EXPECT_EQ(Choose(), 40u);
  sight_.starting = false;
  EXPECT_EQ(Choose(), 45u);
}

TEST_F(AutoSizeTest, GrowsForAFloorAlthoughAnEngineStarts) {
  sight_.start_waits = sight_.starting = true;
  EXPECT_EQ(Choose(), 45u);
}

TEST_F(AutoSizeTest, GivesUpWhatAnEngineLacks) {
  sight_.free_bytes = kSlab;
  size_.Ask(kProcess, 5 * kSlab, /*starts=*/true, now_ns_);
  // Four slabs are missing, and the slack takes one slab.
  EXPECT_EQ(Choose(), 35u);
}

TEST_F(AutoSizeTest, KeepsFloors) {
  sight_.free_bytes = 0;
  size_.Ask(kProcess, 1000 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 4u);
}

TEST_F(AutoSizeTest, PoolBelowItsFloorsStaysAsItIs) {
  sight_.free_bytes = 0;
  sight_.least = 50;
  size_.Ask(kProcess, kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 40u);
}

// The memory of a slab becomes free some steps after its withdrawal.
TEST_F(AutoSizeTest, MemoryOnItsWayIsNotGivenUpTwice) {
  sight_.free_bytes = 0;
  size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 36u);
  sight_.present = 36;
  for (int i = 0; i < 9; ++i) {
    Wait(kSecond / 10);
    size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
    EXPECT_EQ(Choose(), 36u) << i;
  }
  EXPECT_TRUE(size_.arriving(sight_.present, now_ns_));
}

// Another program has taken the memory, so the pool gives up further memory.
TEST_F(AutoSizeTest, MemoryThatDoesNotComeIsGivenUpAgain) {
  sight_.free_bytes = 0;
  size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
  Choose();
  sight_.present = 36;
  Choose();
  Wait(AutoSize::kReturnNs + 1);
  size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 32u);
}

// An engine asks for each part of its weights separately.
TEST_F(AutoSizeTest, MemoryOfOneWishIsNotThereForTheNext) {
  sight_.free_bytes = 0;
  size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 36u);
  sight_.present = 36;
  Choose();
  sight_.free_bytes = kSlab;  // three of four were taken as soon as they came
  size_.Served(kProcess);
  size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 33u) << "at once";
}

// A stopped process does not unmap the memory that the pool gives up.
TEST_F(AutoSizeTest, EndsAtTwiceWhatWasWished) {
  sight_.free_bytes = 0;
  for (int i = 0; i < 10; ++i) {
    size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
    sight_.present = Choose();
    Wait(AutoSize::kAskNs - 1);
    size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
    Wait(AutoSize::kAskNs - 1);
    size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
    Wait(AutoSize::kAskNs - 1);
  }
  EXPECT_EQ(Choose(), 32u);
  // Other engines still get their memory.
  sight_.free_bytes = kHeadroom;
  size_.Served(kProcess);
  Choose();
  size_.Ask(kProcess, 9 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 30u);
}

TEST_F(AutoSizeTest, SoDoesTheReturnOfTheHeadroom) {
  sight_.free_bytes = 0;
  sight_.idle = 40;
  for (int i = 0; i < 10; ++i) {
    sight_.present = Choose();
    Wait(AutoSize::kReturnNs + 1);
  }
  EXPECT_EQ(Choose(), 24u);
}

TEST_F(AutoSizeTest, ArrivedMemoryIsNoLongerOnItsWay) {
  sight_.free_bytes = 0;
  size_.Ask(kProcess, 3 * kSlab, /*starts=*/true, now_ns_);
  Choose();
  sight_.present = 36;
  EXPECT_TRUE(size_.arriving(36, now_ns_)) << "not yet looked at";
  Choose();
  EXPECT_TRUE(size_.arriving(36, now_ns_));
  sight_.free_bytes = 4 * kSlab;
  Choose();
  EXPECT_FALSE(size_.arriving(36, now_ns_));
}

// Twice as much each time.
TEST_F(AutoSizeTest, MemoryInPiecesIsJoinedByMoreSlabs) {
  const auto ask = [this](uint64_t ns) {
    Wait(ns);
    size_.Ask(kProcess, 10 * kSlab, /*starts=*/true, now_ns_);
    return Choose();
  };
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(ask(kSecond / 10), 40u);
  EXPECT_EQ(ask(kSecond / 10), 39u);
  Settle();
  EXPECT_EQ(ask(kSecond / 10), 39u) << "it may be on its way";
  for (int i = 0; i < 9; ++i) ask(kSecond / 10);
  EXPECT_EQ(ask(kSecond / 10), 37u);
}

TEST_F(AutoSizeTest, NextPieceWaitsUntilTheFormerHasLeft) {
  const auto ask = [this] {
    Wait(kSecond / 10);
    size_.Ask(kProcess, 10 * kSlab, /*starts=*/true, now_ns_);
    return Choose();
  };
  for (int i = 0; i < 11; ++i) ask();
  // No slab is free, so none leaves.
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ask(), 39u);
}

TEST_F(AutoSizeTest, ShrinkingEndsWhenTheEngineStopsWaiting) {
  sight_.free_bytes = 0;
  size_.Ask(kProcess, 5 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 34u);
  sight_.present = 38;
  sight_.free_bytes = kHeadroom;
  size_.Served(kProcess);
  EXPECT_EQ(Choose(), 38u);
}

TEST_F(AutoSizeTest, WishOfAProcessThatHasDiedRunsOut) {
  sight_.free_bytes = kHeadroom;
  size_.Ask(kProcess, 100 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_TRUE(size_.asked(now_ns_));
  Wait(AutoSize::kAskNs);
  EXPECT_FALSE(size_.asked(now_ns_));
  EXPECT_EQ(Choose(), 40u);
}

TEST_F(AutoSizeTest, WishesAddUp) {
  sight_.free_bytes = 0;
  size_.Ask(1, 3 * kSlab, /*starts=*/true, now_ns_);
  size_.Ask(2, 4 * kSlab, /*starts=*/true, now_ns_);
  EXPECT_EQ(Choose(), 32u);
}

TEST_F(AutoSizeTest, DoesNotTakeBackAtOnceWhatItGave) {
  GiveFive(/*starts=*/true);
  sight_.free_bytes = 20 * kSlab;  // it has ended
  EXPECT_EQ(Choose(), 35u);
  Wait(AutoSize::kCalmNs + kSecond);
  EXPECT_EQ(Choose(), 39u);
}

// An engine that comes back has already asked for all that it needs.
TEST_F(AutoSizeTest, TakesAtOnceWhatAnEngineLeavesThatDoesNotStart) {
  GiveFive(/*starts=*/false);
  sight_.free_bytes = 20 * kSlab;
  EXPECT_EQ(Choose(), 39u);
}

TEST_F(AutoSizeTest, TakesAtOnceWhatAnEngineLeavesThoughAnotherHasStarted) {
  GiveFive(/*starts=*/true);
  EXPECT_EQ(Choose(), 35u);
  sight_.free_bytes = 20 * kSlab;
  size_.CameFree();
  EXPECT_EQ(Choose(), 39u);
}

TEST_F(AutoSizeTest, GrowsAtOnceByAllThatEnginesLack) {
  sight_.tight = true;
  sight_.free_bytes = kHeadroom + 30 * kSlab;
  sight_.lacking = 12;
  EXPECT_EQ(Choose(), 52u);
}

// Another program has filled the GPU, so the pool gives up idle slabs.
TEST_F(AutoSizeTest, RestoresItsHeadroomFromIdleSlabsOnly) {
  sight_.free_bytes = kHeadroom / 2 - 1;
  sight_.idle = 3;
  EXPECT_EQ(Choose(), 37u);
  sight_.idle = 40;
  EXPECT_EQ(Choose(), 35u);
}

TEST_F(AutoSizeTest, HalfAHeadroomIsLeftAlone) {
  sight_.free_bytes = kHeadroom / 2;
  sight_.idle = 40;
  EXPECT_EQ(Choose(), 40u);
}

TEST_F(AutoSizeTest, DoesNotTryAgainAtOnceWhatTheDeviceCouldNotMake) {
  sight_.tight = true;
  EXPECT_EQ(Choose(), 45u);
  sight_.present = sight_.wanted = 42;
  EXPECT_EQ(Choose(), 42u);
  Wait(AutoSize::kCalmNs + kSecond);
  EXPECT_EQ(Choose(), 47u);
}

// A GPU with a pool and engines that load, free and die, slabs whose memory
// comes late, and a pool that can give only some slabs at a time.
class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {}

  void Step(bool quiet) {
    now_ns_ += 20'000'000;
    if (!quiet) Change();
    Retry();
    GiveBack();
    Resize();
    if (!quiet || random_() % 4 != 0) {
      wanted_ = size_.Choose(See(), now_ns_);
      ASSERT_LE(wanted_, kMost);
      ASSERT_GE(wanted_, std::min(present_, least_));
      if (wanted_ < before_) ++moves_;
      if (wanted_ > before_) ++moves_;
      before_ = wanted_;
    }
  }
  int moves() const { return moves_; }
  uint64_t free() const { return kTotal - used_ - (present_ + late_) * kSlab; }
  bool waits() const { return !waiting_.empty(); }

 private:
  static constexpr uint32_t kMost = 100;
  static constexpr uint64_t kTotal = 108 * kSlab;

  SizeSight See() const {
    SizeSight sight;
    sight.free_bytes = free();
    sight.present = present_;
    sight.wanted = wanted_;
    sight.least = least_;
    sight.most = kMost;
    sight.idle = present_ - std::min(present_, std::max(least_, held_));
    sight.tight = held_ >= present_;
    return sight;
  }
  void Change() {
    switch (random_() % 40) {
      case 0:
        if (waiting_.size() < 3) {
          waiting_[static_cast<uint32_t>(random_())] =
              (1 + random_() % 20) * kSlab;
        }
        break;
      case 1:
        used_ -= used_ == 0 ? 0 : random_() % used_;
        break;
      case 2:
        held_ = random_() % 120;
        break;
      case 3:
        least_ = random_() % 20;
        break;
      default:
        break;
    }
  }
  // Acts like the shim: tries, asks, and stops waiting when nothing can come.
  void Retry() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (free() >= it->second) {
        used_ += it->second;
        size_.Served(it->first);
        it = waiting_.erase(it);
      } else if (present_ <= std::max(least_, 1u) &&
                 !size_.arriving(present_, now_ns_)) {
        size_.Served(it->first);
        it = waiting_.erase(it);
      } else {
        size_.Ask(it->first, it->second, /*starts=*/true, now_ns_);
        ++it;
      }
    }
  }
  void GiveBack() { late_ -= late_ == 0 ? 0 : random_() % (late_ + 1); }
  void Resize() {
    for (int i = 0; i < 8 && present_ > std::max(wanted_, 1u); ++i) {
      --present_;
      ++late_;
    }
    while (present_ < wanted_ && free() >= kSlab) ++present_;
    if (present_ < wanted_) wanted_ = present_;
  }

  std::mt19937 random_;
  AutoSize size_{kSlab, kHeadroom};
  uint64_t now_ns_ = 1000 * kSecond;
  std::map<uint32_t, uint64_t> waiting_;
  uint64_t used_ = 20 * kSlab;
  uint32_t present_ = 40;
  uint32_t wanted_ = 40;
  uint32_t before_ = 40;
  uint32_t late_ = 0;
  uint32_t held_ = 10;
  uint32_t least_ = 4;
  int moves_ = 0;
};

// Every wait ends, and without a new wish the size comes to rest.
TEST(AutoSizeHistoriesTest, ComesToRest) {
  int moves = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    World world(seed);
    for (int i = 0; i < 2'000; ++i) world.Step(/*quiet=*/false);
    for (int i = 0; i < 4'000; ++i) world.Step(/*quiet=*/true);
    EXPECT_FALSE(world.waits()) << "seed " << seed;
    const int before = world.moves();
    moves += before;
    for (int i = 0; i < 4'000; ++i) world.Step(/*quiet=*/true);
    EXPECT_EQ(world.moves(), before) << "seed " << seed;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(moves, 300 * 20);
}

}  // namespace
}  // namespace fineserve::slab
