// Tests of slabs that are mapped and unmapped while the engine serves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/contract/abi/scoreboard_reader.h"
#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using abi::SlabState;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

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

// Also while a step is in flight, since no step can use it: an engine that
// always has one would never give the memory back.
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

// The keeper does it, if there is one: the engine's thread may hold what the
// driver waits for.
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
