// Tests of an idle engine: it keeps no slab that another engine could use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "daemon/contract/abi/scoreboard_reader.h"
#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using Fault = FakeDaemon::Fault;

TEST_F(EngineViewTest, WantFallsWithTheBlocksThatAreFreedBetweenSteps) {
  Serve();
  for (uint32_t s = 0; s < 2; ++s) daemon_->Lease(s, s + 1);
  Step();
  const auto blocks = Allocate(kSlabBlocks + 1);
  Step();
  EXPECT_EQ(LastWanted(), 2u);
  EXPECT_EQ(Free({blocks[0]}), FS_OK);
  EXPECT_EQ(LastWanted(), 1u);
  EXPECT_EQ(Free({blocks.begin() + 1, blocks.end()}), FS_OK);
  EXPECT_EQ(LastWanted(), 0u);
  const auto scoreboard = abi::ReadViewScoreboard(daemon_->view_scoreboard());
  ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
  EXPECT_EQ(scoreboard->used_blocks, 0u);
  EXPECT_EQ(scoreboard->used[1] + scoreboard->used[2], 0u);
}

TEST_F(EngineViewTest, WantFallsWhenTheStepEndsThatFreedBlocks) {
  Serve();
  daemon_->Lease(0, 1);
  Step();
  const uint64_t step = view_.BeginStep(driver_);
  const auto blocks = Allocate(kSlabBlocks);
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_EQ(LastWanted(), 1u);
  EXPECT_EQ(Free(blocks), FS_OK);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  EXPECT_EQ(view_.EndStep(next), FS_OK);
  EXPECT_EQ(LastWanted(), 0u);
}

TEST_F(EngineViewTest, WatermarkCountsAsSoonAsItIsSet) {
  Serve();
  Step();
  view_.SetWatermark(2 * kSlabBlocks);
  EXPECT_EQ(LastWanted(), 2u);
  view_.SetWatermark(0);
  EXPECT_EQ(LastWanted(), 0u);
}

TEST_F(EngineViewTest, SlabGoesBackWithItsLastBlockWithoutAnotherStep) {
  Serve();
  for (uint32_t s = 0; s < 2; ++s) daemon_->Lease(s, s + 5);
  Step();
  const auto blocks = Allocate(2 * kSlabBlocks);
  for (uint32_t s = 0; s < 2; ++s) daemon_->AskBack(s, s + 5);
  const uint64_t step = view_.BeginStep(driver_);
  std::vector<uint32_t> halves[2];
  for (const uint32_t id : blocks) {
    halves[id >= 2 * kSlabBlocks].push_back(id);
  }
  EXPECT_EQ(Free(halves[0]), FS_OK);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  EXPECT_THAT(Returned(1), ElementsAre(Pair(0, 5))) << "with its step";
  EXPECT_EQ(Free(halves[1]), FS_OK);
  EXPECT_THAT(Returned(2), ElementsAre(Pair(0, 5), Pair(1, 6)));
}

TEST_F(EngineViewTest, KeeperReturnsWhatHoldsNoUsedBlock) {
  Serve();
  for (uint32_t s = 0; s < 2; ++s) daemon_->Lease(s, s + 5);
  Step();
  const auto blocks = Allocate(kSlabBlocks);
  const bool first = blocks[0] < 2 * kSlabBlocks;
  for (uint32_t s = 0; s < 2; ++s) daemon_->AskBack(s, s + 5);
  view_.Keep(driver_);
  EXPECT_THAT(Returned(1), ElementsAre(first ? Pair(1, 6) : Pair(0, 5)));
  EXPECT_EQ(Stats().free_blocks, 0u) << "it hands out no block of the other";
  EXPECT_EQ(Stats().leaving_slabs, 1u);
}

TEST_F(EngineViewTest, KeeperReturnsNothingUnderAStepInFlight) {
  Serve();
  daemon_->Lease(0, 5);
  Step();
  const uint64_t step = view_.BeginStep(driver_);
  Free(Allocate(1));
  daemon_->AskBack(0, 5);
  view_.Keep(driver_);
  EXPECT_EQ(Stats().returned_slabs, 0u) << "the step may write it";
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  EXPECT_THAT(Returned(1), ElementsAre(Pair(0, 5)));
}

TEST_F(EngineViewTest, KeeperUnmapsGuardedSlabsBeforeTheyGo) {
  Serve(FS_KV_GUARDED);
  daemon_->Lease(1, 5);
  Step();
  EXPECT_EQ(PoolMappings(), 2u);
  const auto blocks = Allocate(1);
  daemon_->AskBack(1, 5);
  view_.Keep(driver_);
  EXPECT_EQ(Free(blocks), FS_OK);
  EXPECT_EQ(Stats().returned_slabs, 0u) << "it is still mapped";
  view_.Keep(driver_);
  EXPECT_EQ(PoolMappings(), 0u);
  EXPECT_THAT(Returned(1), ElementsAre(Pair(1, 5)));
}

TEST_F(EngineViewTest, IdleEngineNeedsNoRoomForRunningSteps) {
  Serve();
  daemon_->Lease(0, 1);
  view_.SetWatermark(2 * kSlabBlocks);
  Step();
  Allocate(1);
  Step();
  EXPECT_EQ(LastWanted(), 3u);
  EXPECT_TRUE(FakeDaemon::Becomes([&] {
    view_.Keep(driver_);
    return Stats().wanted_slabs == 1;
  }));
  EXPECT_EQ(LastWanted(), 1u);
  const uint64_t step = view_.BeginStep(driver_);
  EXPECT_EQ(LastWanted(), 3u);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
}

TEST_F(EngineViewTest, EngineThatWaitsForBlocksIsNotIdle) {
  Serve();
  view_.SetWatermark(2 * kSlabBlocks);
  Step();
  uint32_t id;
  EXPECT_EQ(view_.Allocate(1, &id), FS_EXHAUSTED);
  const uint64_t idle_ms = NowMs() + 200;
  EXPECT_TRUE(FakeDaemon::Becomes([&] {
    view_.Keep(driver_);
    return NowMs() > idle_ms;
  }));
  EXPECT_EQ(LastWanted(), 2u);
}

TEST_F(EngineViewTest, KeeperLeavesLeasesToAnEngineWithItsOwnPool) {
  Serve();
  daemon_->Lease(1, 5);
  EXPECT_THAT(Poll(), ElementsAre(Pair(2, FS_KV_LEASED)));
  daemon_->AskBack(1, 5);
  EXPECT_GT(view_.Keep(driver_).ms, 0u);
  EXPECT_THAT(Poll(), ElementsAre(Pair(2, FS_KV_ASKED_BACK)));
  EXPECT_EQ(view_.Close(driver_), FS_OK);
  EXPECT_TRUE(FakeDaemon::Becomes([&] { return view_.Keep(driver_).ms == 0; }))
      << "nothing is left to keep";
}

// The thread that maps a slab waits for the daemon's granules.
TEST_F(EngineViewTest, MappingASlabDoesNotHoldUpTheScheduler) {
  Serve(FS_KV_GUARDED, {.fault = Fault::kSilentAtPoolGranules});
  daemon_->SetSlab(0, {abi::SlabState::kPartial, FakeDaemon::kEngine, 5});
  std::thread watcher([&] { Poll(); });
  EXPECT_TRUE(FakeDaemon::Becomes(
      [&] { return !daemon_->batch_sizes_asked().empty(); }));
  EXPECT_EQ(view_.Want(4), FS_OK);
  EXPECT_EQ(view_.ReturnSlab(1), FS_INVALID) << "it was not reported";
  EXPECT_EQ(link_.state(), abi::LinkState::kConnected)
      << "they waited until the daemon had not answered for too long";
  daemon_.reset();
  watcher.join();
}

// Runs an engine's thread, its keeper, and a daemon that leases slabs and asks
// them back.
TEST_F(EngineViewTest, KeeperAndEngineLoseNoBlockBetweenThem) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Serve();
  std::atomic<bool> serving{true};
  std::thread keeper([&] {
    while (serving) view_.Keep(driver_);
  });
  std::vector<uint32_t> held;
  uint32_t lease = 0;
  uint32_t given[kSlabs] = {};
  size_t taken_back = 0;
  for (int i = 0; i < 4'000; ++i) {
    const uint32_t s = random() % kSlabs;
    if (given[s] == 0) {
      daemon_->Lease(s, given[s] = ++lease);
    } else if (random() % 4 == 0) {
      daemon_->AskBack(s, given[s]);
    }
    const auto returned = daemon_->views().returned;
    for (; taken_back < returned.size(); ++taken_back) {
      const auto [slab, its_lease] = returned[taken_back];
      ASSERT_EQ(its_lease, given[slab]);
      for (const uint32_t id : held) {
        ASSERT_NE(id / kSlabBlocks, slab + 1) << "a used block's slab went";
      }
      given[slab] = 0;
      daemon_->SetSlab(slab, {});
    }
    const uint64_t step = view_.BeginStep(driver_);
    ASSERT_NE(step, 0u);
    uint32_t ids[8];
    const uint32_t count = 1 + random() % 8;
    if (view_.Allocate(count, ids) == FS_OK) {
      held.insert(held.end(), ids, ids + count);
    }
    ASSERT_EQ(view_.EndStep(step), FS_OK);
    std::shuffle(held.begin(), held.end(), random);
    while (!held.empty() && random() % 9 != 0) {
      ASSERT_EQ(Free({held.back()}), FS_OK);
      held.pop_back();
    }
  }
  ASSERT_EQ(Free(held), FS_OK);
  serving = false;
  keeper.join();
  EXPECT_EQ(Stats().used_blocks, 0u);
  for (uint32_t s = 0; s < kSlabs; ++s) {
    if (given[s] != 0) daemon_->AskBack(s, given[s]);
  }
  view_.Keep(driver_);
  EXPECT_EQ(Stats().leased_slabs, 0u);
}

}  // namespace
}  // namespace fineserve::shim
