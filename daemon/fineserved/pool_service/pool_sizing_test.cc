#include "daemon/fineserved/pool_service/pool_sizing.h"

#include <gtest/gtest.h>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/fineserved/pool_service/pool_fixture.h"

namespace fineserve::server {
namespace {

using slab::EngineId;

using abi::kMiB;
constexpr uint64_t kSlab = 2 * kMiB;
constexpr uint32_t kMost = 64;
constexpr uint32_t kPresent = 32;
constexpr uint64_t kHeadroom = 8 * kSlab;
constexpr pid_t kPid = 10;

// A device with room for the pool, `free` slabs and the headroom.
class PoolSizingTest : public PoolFixture {
 protected:
  PoolSizingTest() : PoolFixture({kSlab, 1, kMost}, kPresent) {
    SetFree(kHeadroom);
  }

  // Sets the memory that is free when the pool has its first size.
  void SetFree(uint64_t bytes) {
    backing_.set_device_bytes(kPresent * kSlab + bytes);
  }
  // Lets the daemon's loop run for a second.
  void Run() {
    for (int i = 0; i < 50; ++i) {
      clock_.AdvanceNs(20'000'000);
      Poll();
      sizing_.Settle();
    }
  }
  // Makes a measurement that is due, and takes its result.
  void Measure() {
    sizing_.Settle();
    Poll();
    sizing_.Settle();
  }
  // Acts like a waiting request, which is tried again after the measurement.
  bool AwaitSlabs(uint32_t lack) {
    static_cast<void>(sizing_.AwaitSlabs(lack));
    Measure();
    return sizing_.AwaitSlabs(lack);
  }
  EngineId JoinWithView(uint64_t floor_blocks) {
    const EngineId engine = Join("a", kPid);
    slab::ViewSpec spec;
    spec.mode = abi::ViewMode::kView;
    spec.format = {1, kSlab / 16, 16};
    spec.floor_blocks = floor_blocks;
    EXPECT_TRUE(pool_.RegisterView(engine, kPid, spec, {}).ok());
    EXPECT_TRUE(pool_.ActivateView(engine, kPid, kMost, 1).ok());
    return engine;
  }
  uint32_t present() const { return pool_.state().present_slabs(); }

  PoolSizing sizing_{kHeadroom, &pool_, &clock_};
};

TEST_F(PoolSizingTest, IdlePoolStaysAsItIs) {
  SetFree(kHeadroom + 100 * kSlab);
  for (int i = 0; i < 60; ++i) Run();
  EXPECT_EQ(present(), kPresent);
}

// Requests wait elsewhere until there is KV for them.
TEST_F(PoolSizingTest, GrowsForRequestsAlthoughItsEnginesWantNoMore) {
  SetFree(kHeadroom + 10 * kSlab);
  JoinWithView(1);
  Run();
  EXPECT_EQ(present(), kPresent);
  EXPECT_FALSE(sizing_.IsAtLimit());
  EXPECT_FALSE(sizing_.IsAtLimit(10 * kSlab));
  EXPECT_TRUE(sizing_.IsAtLimit(11 * kSlab)) << "less is free";
  for (int i = 0; i < 10; ++i) {
    sizing_.Grow();
    Run();
  }
  EXPECT_EQ(present(), kPresent + 10);
  EXPECT_TRUE(sizing_.IsAtLimit());
}

TEST_F(PoolSizingTest, GrowsIntoWhatIsFreeWhenEnginesWantMore) {
  SetFree(kHeadroom + 10 * kSlab);
  const EngineId engine = JoinWithView(1);
  pool_.Want(engine, kPid, kMost);
  for (int i = 0; i < 10; ++i) Run();
  EXPECT_EQ(present(), kPresent + 10);
  EXPECT_EQ(pool_.slabs().HeldBy(engine).in_view, kPresent + 10);
}

TEST_F(PoolSizingTest, NotWhileAnEngineIsStarting) {
  SetFree(kHeadroom + 10 * kSlab);
  const EngineId engine = JoinWithView(1);
  ASSERT_TRUE(pool_.Join("starts", kUser, kPid + 1).ok());
  pool_.Want(engine, kPid, kMost);
  for (int i = 0; i < 10; ++i) Run();
  EXPECT_EQ(present(), kPresent);
  pool_.Exited(kPid + 1);
  for (int i = 0; i < 10; ++i) Run();
  EXPECT_EQ(present(), kPresent + 10);
}

TEST_F(PoolSizingTest, ShrinksForAProcessThatAsksAndSaysWhatCanCome) {
  const EngineId engine = Join("b", kPid);
  EXPECT_EQ(sizing_.Ask(engine, kPid, 20 * kSlab, /*starts=*/true),
            (kPresent - 1) * kSlab);
  Run();
  // Twelve slabs are missing, and the slack takes another two.
  EXPECT_EQ(present(), kPresent - 14);
}

TEST_F(PoolSizingTest, ProcessThatAsksWaitsForOthersSlabsNotForItsOwn) {
  const EngineId engine = JoinWithView(16);
  pool_.Want(engine, kPid, kMost);
  Run();
  ASSERT_EQ(pool_.slabs().HeldBy(engine).in_view, kPresent);
  clock_.AdvanceNs(1'000'000'000);
  sizing_.Ask(engine, kPid, 20 * kSlab, /*starts=*/true);
  Measure();
  EXPECT_EQ(sizing_.Ask(engine, kPid, 20 * kSlab, /*starts=*/true), 0u);
  const EngineId other = *pool_.Join("b", kUser, kPid + 1);
  EXPECT_EQ(sizing_.Ask(other, kPid + 1, 20 * kSlab, /*starts=*/true),
            (kPresent - 1) * kSlab);
}

TEST_F(PoolSizingTest, SaysWhatNoEngineHolds) {
  clock_.AdvanceNs(1);
  const auto idle_bytes = [this] {
    EXPECT_EQ(sizing_.IdleBytes(), absl::nullopt) << "it is measured first";
    Measure();
    return sizing_.IdleBytes();
  };
  EXPECT_EQ(idle_bytes(), kPresent * kSlab + kHeadroom);
  const EngineId engine = JoinWithView(1);
  pool_.Want(engine, kPid, kMost);
  Run();
  EXPECT_EQ(idle_bytes(), kHeadroom) << "all are leased";
}

// No other engine loses anything for such a wish.
TEST_F(PoolSizingTest, WishThatCanNeverBeMetTakesNothing) {
  Run();
  const EngineId engine = Join("b", kPid);
  for (const uint64_t bytes : {1000 * kSlab, UINT64_MAX}) {
    // There may be more free memory than a second ago.
    clock_.AdvanceNs(1'000'000'000);
    EXPECT_EQ(sizing_.Ask(engine, kPid, bytes, /*starts=*/true), kSlab);
    Measure();
    EXPECT_EQ(sizing_.Ask(engine, kPid, bytes, /*starts=*/true), 0u);
    Run();
    EXPECT_EQ(present(), kPresent);
  }
}

// The daemon's loop does not spin while the driver is busy.
TEST_F(PoolSizingTest, NothingIsDueWhileItMeasures) {
  const EngineId engine = Join("b", kPid);
  sizing_.Settle();
  sizing_.Ask(engine, kPid, kSlab, /*starts=*/true);
  EXPECT_EQ(sizing_.next_ns(), UINT64_MAX);
  Poll();
  sizing_.Settle();
  EXPECT_LT(sizing_.next_ns(), UINT64_MAX);
}

TEST_F(PoolSizingTest, DoesNotGrowForAFloorThatItCannotHave) {
  SetFree(kHeadroom + 4 * kSlab);
  Run();
  EXPECT_TRUE(sizing_.AwaitSlabs(5))
      << "what was measured a second ago says nothing";
  EXPECT_FALSE(AwaitSlabs(5)) << "more than is free";
  EXPECT_FALSE(AwaitSlabs(0)) << "it is not short of slabs";
  Run();
  EXPECT_EQ(present(), kPresent);
}

TEST_F(PoolSizingTest,
       FloorThatDoesNotFitIsWorthWaitingForWhileThePoolMayGrow) {
  Run();
  EXPECT_FALSE(AwaitSlabs(1)) << "only the headroom is free";
  SetFree(kHeadroom + 4 * kSlab);
  Run();
  EXPECT_TRUE(AwaitSlabs(4));
  Run();
  EXPECT_EQ(present(), kPresent + 4);
}

}  // namespace
}  // namespace fineserve::server
