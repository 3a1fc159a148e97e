#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "daemon/contract/abi/scoreboard_reader.h"
#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using abi::SlabState;
using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Lt;
using testing::Pair;

// Tests of an engine that serves with our block allocator.

TEST_F(EngineViewTest, StepHandsOutLeasedSlabsBlocksOnly) {
  Serve();
  uint32_t id = 0;
  Step();
  EXPECT_EQ(view_.Allocate(1, &id), FS_EXHAUSTED) << "nothing is leased";
  daemon_->Lease(3, 7);  // view index 4
  EXPECT_EQ(view_.Allocate(1, &id), FS_EXHAUSTED) << "not before a step begins";
  Step();
  for (uint32_t block : Allocate(kSlabBlocks)) {
    EXPECT_THAT(block, AllOf(Ge(4 * kSlabBlocks), Lt(5 * kSlabBlocks)));
  }
  EXPECT_EQ(view_.Allocate(1, &id), FS_EXHAUSTED);
  EXPECT_EQ(Stats().driver_calls_serving, 0u);
}

TEST_F(EngineViewTest, SlabGoesBackWhenItsLastStepHasEnded) {
  Serve();
  daemon_->Lease(0, 5);
  Step();
  const auto blocks = Allocate(3);
  const uint64_t step = view_.BeginStep(driver_);
  daemon_->AskBack(0, 5);
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_EQ(Stats().leaving_slabs, 1u);
  EXPECT_EQ(Stats().free_blocks, 0u);
  EXPECT_EQ(Free(blocks), FS_OK);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  const uint64_t last = view_.BeginStep(driver_);
  EXPECT_THAT(daemon_->views().returned, IsEmpty())
      << "a step in flight may still write it";
  EXPECT_EQ(view_.EndStep(next), FS_OK);
  EXPECT_EQ(view_.EndStep(last), FS_OK);
  Step();
  EXPECT_THAT(Returned(1), ElementsAre(Pair(0, 5)));
  EXPECT_EQ(Stats().returned_slabs, 1u);
  EXPECT_EQ(Stats().leased_slabs, 0u);
  daemon_->Lease(0, 6);
  Step();
  Allocate(kSlabBlocks);
}

TEST_F(EngineViewTest, WantFollowsUseAndWatermarkUpToTheCap) {
  Serve(FS_KV_VIEW, {.cap_slabs = 3});
  for (uint32_t s = 0; s < 3; ++s) daemon_->Lease(s, s + 1);
  view_.SetWatermark(1);
  Step();
  EXPECT_EQ(Stats().wanted_slabs, 1u);
  const auto some = Allocate(kSlabBlocks);
  Step();
  EXPECT_EQ(LastWanted(), 2u);
  view_.SetWatermark(10 * kSlabBlocks);
  Step();
  EXPECT_EQ(LastWanted(), 3u);
  Free(some);
  view_.SetWatermark(0);
  Step();
  EXPECT_EQ(LastWanted(), 0u);
}

// A leaving slab's blocks cannot be handed out again, and the daemon counts the
// slab as held until it is returned.
TEST_F(EngineViewTest, WantCountsLeavingSlabsBesideWhatItNeeds) {
  Serve();
  for (uint32_t s = 0; s < 2; ++s) daemon_->Lease(s, s + 1);
  view_.SetWatermark(1);
  Step();
  const auto blocks = Allocate(2 * kSlabBlocks);
  Step();
  EXPECT_EQ(LastWanted(), 3u);
  // All blocks of the second slab and one block of the first stay in use.
  const auto of_second = [](uint32_t id) { return id >= 2 * kSlabBlocks; };
  std::vector<uint32_t> first;
  std::remove_copy_if(blocks.begin(), blocks.end(), std::back_inserter(first),
                      of_second);
  ASSERT_EQ(first.size(), kSlabBlocks);
  Free({first.begin() + 1, first.end()});
  daemon_->AskBack(0, 1);
  Step();
  EXPECT_EQ(LastWanted(), 3u) << "one leaves, one is full, one to grow into";
  Free({first[0]});
  Step();
  EXPECT_EQ(Returned(1).size(), 1u);
  EXPECT_EQ(LastWanted(), 2u);
}

TEST_F(EngineViewTest, WatermarkBeyondAnyPoolWantsTheCap) {
  Serve();
  daemon_->Lease(0, 1);
  Step();
  Allocate(1);
  view_.SetWatermark(UINT64_MAX);
  Step();
  EXPECT_EQ(LastWanted(), kSlabs);
}

TEST_F(EngineViewTest, FailedAllocationAsksForWhatItLacked) {
  Serve();
  Step();
  uint32_t ids[3 * kSlabBlocks];
  EXPECT_EQ(view_.Allocate(std::size(ids), ids), FS_EXHAUSTED);
  EXPECT_EQ(LastWanted(), 3u);
  Step();
  EXPECT_EQ(LastWanted(), 3u) << "it is still short";
  for (uint32_t s = 0; s < 3; ++s) daemon_->Lease(s, s + 1);
  Step();
  EXPECT_EQ(view_.Allocate(std::size(ids), ids), FS_OK);
}

// Otherwise the daemon, which saw the engine not use its slabs, would wait for
// the engine to use them.
TEST_F(EngineViewTest, StarvingEngineAsksAgainThoughItWantsTheSame) {
  Serve();
  Step();
  uint32_t ids[3 * kSlabBlocks];
  EXPECT_EQ(view_.Allocate(std::size(ids), ids), FS_EXHAUSTED);
  EXPECT_EQ(LastWanted(), 3u);
  const size_t reported = daemon_->views().wanted.size();
  EXPECT_TRUE(FakeDaemon::Becomes([&] {
    EXPECT_EQ(view_.Allocate(std::size(ids), ids), FS_EXHAUSTED);
    return daemon_->views().wanted.size() >= reported + 2;
  }));
  EXPECT_EQ(daemon_->views().wanted.back(), 3u);
}

TEST_F(EngineViewTest, WatermarkIsMissedOnlyWhileThePoolHadAFreeSlabForUs) {
  Serve(FS_KV_VIEW, {.cap_slabs = 1});
  Step();
  uint32_t id = 0;
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().failed_allocations, 1u);
  EXPECT_EQ(Stats().watermark_misses, 1u);
  daemon_->Lease(0, 1);
  Step();
  Allocate(kSlabBlocks);
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().failed_allocations, 2u);
  EXPECT_EQ(Stats().watermark_misses, 1u) << "at its cap";
}

TEST_F(EngineViewTest, SlabThatBecameFreeWithinTheStepIsNoWatermarkMiss) {
  Serve();
  for (uint32_t s = 0; s < kSlabs; ++s) {
    daemon_->SetSlab(s, {SlabState::kPartial, 9, s + 1});
  }
  Step();
  daemon_->SetFreeSince(0, UINT64_MAX);
  uint32_t id = 0;
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().watermark_misses, 0u);
  daemon_->SetFreeSince(0, 1);
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().watermark_misses, 1u);
}

TEST_F(EngineViewTest, WatermarkIsNotMissedWhenOthersHaveAll) {
  Serve();
  for (uint32_t s = 0; s < kSlabs; ++s) {
    daemon_->SetSlab(s, {SlabState::kPartial, 9, s + 1});
  }
  Step();
  uint32_t id = 0;
  view_.Allocate(1, &id);
  EXPECT_EQ(Stats().failed_allocations, 1u);
  EXPECT_EQ(Stats().watermark_misses, 0u);
}

TEST_F(EngineViewTest, StepsEndInOrderAndOnce) {
  Serve();
  const uint64_t a = view_.BeginStep(driver_);
  const uint64_t b = view_.BeginStep(driver_);
  EXPECT_EQ(view_.EndStep(b + 1), FS_INVALID);
  EXPECT_EQ(view_.EndStep(b), FS_OK);
  EXPECT_EQ(view_.EndStep(a), FS_INVALID);
}

TEST_F(EngineViewTest, FreeOfWhatIsNotAllocatedNamesTheBlock) {
  Serve();
  daemon_->Lease(0, 1);
  Step();
  const auto ids = Allocate(2);
  EXPECT_EQ(Free({ids[0], ids[0]}), FS_INVALID);
  EXPECT_THAT(KvErrorText(), HasSubstr(std::to_string(ids[0])));
  EXPECT_EQ(Stats().used_blocks, 1u);
}

TEST_F(EngineViewTest, ManyReturnsTakeSeveralNotices) {
  StartDaemon({.slab_count = 150});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  ASSERT_EQ(view_.Activate(driver_), FS_OK);
  for (uint32_t s = 0; s < 150; ++s) daemon_->Lease(s, s + 1);
  Step();
  for (uint32_t s = 0; s < 150; ++s) daemon_->AskBack(s, s + 1);
  Step();
  EXPECT_EQ(Returned(150).size(), 150u);
}

TEST_F(EngineViewTest, ViewScoreboardSaysWhatTheEngineDoes) {
  Serve();
  daemon_->Lease(0, 4);
  daemon_->Lease(2, 5);
  view_.SetWatermark(7);
  Step();
  Allocate(kSlabBlocks + 3);
  usleep(6'000);
  const uint64_t step = view_.BeginStep(driver_);
  usleep(6'000);
  view_.BeginStep(driver_);
  const auto scoreboard = abi::ReadViewScoreboard(daemon_->view_scoreboard());
  ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
  EXPECT_EQ(scoreboard->pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(scoreboard->engine_id, FakeDaemon::kEngine);
  EXPECT_EQ(scoreboard->epoch, 42u);
  EXPECT_EQ(scoreboard->used_blocks, kSlabBlocks + 3);
  EXPECT_EQ(scoreboard->free_blocks, kSlabBlocks - 3);
  EXPECT_EQ(scoreboard->watermark_blocks, 7u);
  EXPECT_EQ(scoreboard->linked_slabs, 2u);
  EXPECT_EQ(scoreboard->allocated_blocks, kSlabBlocks + 3);
  EXPECT_EQ(scoreboard->steps_begun, step);
  EXPECT_EQ(scoreboard->steps_ended, step - 1);
  EXPECT_GT(scoreboard->driver_calls_to_activate, 0u);
  EXPECT_EQ(scoreboard->driver_calls_serving, 0u);
  ASSERT_EQ(scoreboard->used.size(), kSlabs + 1);
  EXPECT_EQ(scoreboard->used[1] + scoreboard->used[3], kSlabBlocks + 3);
}

// Tests of slabs that are mapped and unmapped while the engine serves.

TEST_F(EngineViewTest, GuardedSlabIsMappedBeforeUseAndUnmappedBeforeItGoes) {
  Serve(FS_KV_GUARDED);
  EXPECT_EQ(PoolMappings(), 0u);
  daemon_->Lease(1, 5);
  Step();
  EXPECT_TRUE(HasSlab(2));
  EXPECT_EQ(PoolMappings(), 2u);
  const auto blocks = Allocate(1);
  daemon_->AskBack(1, 5);
  Step();
  EXPECT_TRUE(HasSlab(2)) << "a block is in use";
  Free(blocks);
  Step();
  EXPECT_EQ(PoolMappings(), 0u);
  EXPECT_THAT(Returned(1), ElementsAre(Pair(1, 5)));
  EXPECT_GT(Stats().driver_calls_serving, 0u);
  const auto scoreboard = abi::ReadViewScoreboard(daemon_->view_scoreboard());
  ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
  EXPECT_EQ(scoreboard->swaps, 2u);
  EXPECT_GT(scoreboard->longest_swap_ns, 0u);
  EXPECT_GE(scoreboard->swaps_ns, scoreboard->longest_swap_ns);
}

TEST_F(EngineViewTest, GuardedSlabsAreNotExchangedUnderAStepInFlight) {
  Serve(FS_KV_GUARDED);
  view_.SetWatermark(1);
  daemon_->Lease(0, 4);
  Step();
  ASSERT_EQ(Stats().free_blocks, kSlabBlocks);
  const uint64_t step = view_.BeginStep(driver_);
  daemon_->Lease(1, 5);
  fake_.log.clear();
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_THAT(fake_.log, IsEmpty()) << "free blocks are left, so it can wait";
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
  Allocate(kSlabBlocks);
  const uint64_t third = view_.BeginStep(driver_);
  EXPECT_EQ(fake_.log.at(1), "cuCtxSynchronize")
      << "it would run out of blocks";
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
  for (const uint64_t s : {step, next, third}) view_.EndStep(s);
}

TEST_F(EngineViewTest, GuardedSlabThatCannotBeMappedIsNotUsed) {
  Serve(FS_KV_GUARDED);
  fake_.fail = "cuMemImport";
  daemon_->Lease(1, 5);
  Step();
  EXPECT_EQ(Stats().free_blocks, 0u);
  EXPECT_EQ(Stats().leased_slabs, 1u);
  EXPECT_TRUE(IsScratch(tensors_[0].base + 2 * kShare));
}

TEST_F(EngineViewTest, SlabByWhichThePoolGrewIsMappedWithItsFirstLease) {
  StartDaemon({.slab_count = kSlabs});
  ASSERT_EQ(Register(), FS_OK);
  AddTensors();
  scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  daemon_->SetSlab(2, {SlabState::kAbsent, 0, 0});
  ASSERT_EQ(view_.Activate(driver_), FS_OK);
  EXPECT_TRUE(IsScratch(tensors_[1].base + 3 * kShare));
  daemon_->Lease(2, 5);
  Step();
  EXPECT_TRUE(HasSlab(3));
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
}

// This also happens while a step is in flight, because no step can use the
// slab: an engine that always has a step in flight would otherwise never give
// the memory back.
TEST_F(EngineViewTest, WithdrawnSlabIsLetGoAndItsNextMemoryIsMapped) {
  Serve();
  const uint64_t step = view_.BeginStep(driver_);
  daemon_->Withdraw(2);
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_FALSE(HasSlab(3));
  view_.EndStep(step);
  view_.EndStep(next);
  EXPECT_TRUE(IsScratch(tensors_[0].base + 3 * kShare));
  EXPECT_EQ(PoolMappings(), 2u * (kSlabs - 1));
  daemon_->Regrow(2);
  daemon_->Lease(2, 5);
  Step();
  EXPECT_TRUE(HasSlab(3));
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
}

// If there is a keeper, it follows the pool, because the engine's thread may
// hold what the driver waits for.
TEST_F(EngineViewTest, KeeperFollowsThePoolAndStepsDoNot) {
  Serve();
  view_.Keep(driver_);
  const uint64_t step = view_.BeginStep(driver_);
  daemon_->Withdraw(2);
  fake_.log.clear();
  const uint64_t next = view_.BeginStep(driver_);
  EXPECT_THAT(fake_.log, IsEmpty());
  view_.Keep(driver_);
  EXPECT_TRUE(IsScratch(tensors_[0].base + 3 * kShare));
  daemon_->Regrow(2);
  daemon_->Lease(2, 5);
  fake_.log.clear();
  view_.EndStep(step);
  view_.EndStep(next);
  Step();
  EXPECT_THAT(fake_.log, IsEmpty());
  EXPECT_EQ(Stats().free_blocks, 0u) << "nothing is there yet";
  view_.Keep(driver_);
  EXPECT_TRUE(HasSlab(3));
  Step();
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
}

TEST_F(EngineViewTest, SlabThatBecameOtherMemoryUnseenIsMappedAgainBeforeUse) {
  Serve();
  daemon_->SetSlab(2, {SlabState::kAbsent}, /*tell=*/false);
  daemon_->Regrow(2);
  daemon_->Lease(2, 5);
  fake_.log.clear();
  Step();
  EXPECT_EQ(std::count(fake_.log.begin(), fake_.log.end(), "cuMemImport"), 2);
  EXPECT_TRUE(HasSlab(3));
  EXPECT_EQ(Stats().free_blocks, kSlabBlocks);
  fake_.log.clear();
  daemon_->AskBack(2, 5);
  Step();
  daemon_->Lease(2, 6);
  Step();
  EXPECT_THAT(fake_.log, IsEmpty()) << "it still has the same memory";
}

}  // namespace

}  // namespace fineserve::shim
