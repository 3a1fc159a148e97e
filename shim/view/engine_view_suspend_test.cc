#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using Fault = FakeDaemon::Fault;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// Tests of a view that is suspended and resumed.

class EngineViewSuspendTest : public EngineViewTest {
 protected:
  void ExpectNothingIsMapped() const {
    EXPECT_THAT(fake_.mappings, IsEmpty());
    EXPECT_THAT(fake_.created, IsEmpty()) << "scratch";
    EXPECT_EQ(fake_.handles, 0) << "granules";
  }
  bool WasSuspended(int times) const {
    return daemon_->Eventually(
        [times](const auto& log) { return log.suspended == times; });
  }
  // True if the keeper has nothing left to send, once the daemon has answered.
  bool NothingIsToBeTold() {
    return FakeDaemon::Becomes([&] { return view_.Keep(driver_).ms == 0; });
  }
};

class SuspendTest : public EngineViewSuspendTest,
                    public testing::WithParamInterface<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Modes, SuspendTest,
                         testing::Values(FS_KV_VIEW, FS_KV_GUARDED,
                                         FS_KV_STRICT));

TEST_P(SuspendTest, NothingIsMappedAndTheAddressesStay) {
  Serve(GetParam());
  daemon_->Lease(1, 5);
  ASSERT_THAT(Poll(), ElementsAre(Pair(2, FS_KV_LEASED)));
  ASSERT_TRUE(HasSlab(2));
  const uint64_t reserved = fake_.reserved_bytes;
  ASSERT_EQ(view_.Suspend(driver_), FS_OK) << KvErrorText();
  ExpectNothingIsMapped();
  EXPECT_EQ(fake_.reserved_bytes, reserved);
  EXPECT_TRUE(WasSuspended(1));
  EXPECT_EQ(Stats().leased_slabs, 0u);

  daemon_->Free(1);
  ASSERT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
  EXPECT_TRUE(IsScratch(tensors_[0].base));
  EXPECT_THAT(Poll(), IsEmpty()) << "what it held before is another's now";
  daemon_->Lease(2, 6);
  EXPECT_THAT(Poll(), ElementsAre(Pair(3, FS_KV_LEASED)));
  EXPECT_TRUE(HasSlab(3));
  EXPECT_EQ(daemon_->views().closed, 0);
}

TEST_F(EngineViewSuspendTest, NothingIsUnmappedBeforeTheContextsWorkIsDone) {
  Serve();
  fake_.fail = "cuCtxSynchronize";
  EXPECT_EQ(view_.Suspend(driver_), FS_DRIVER);
  EXPECT_TRUE(HasSlab(1));
  fake_.fail.clear();
  daemon_->Lease(0, 5);
  EXPECT_THAT(Poll(), ElementsAre(Pair(1, FS_KV_LEASED))) << "it still serves";
  EXPECT_EQ(daemon_->views().suspended, 0);
}

TEST_F(EngineViewSuspendTest,
       SuspendWithBlocksInUseIsRefusedAndChangesNothing) {
  Serve();
  daemon_->Lease(0, 5);
  Step();
  const auto blocks = Allocate(3);
  EXPECT_EQ(view_.Suspend(driver_), FS_STATE);
  EXPECT_THAT(KvErrorText(), HasSubstr("3 blocks"));
  EXPECT_EQ(Free(blocks), FS_OK);
  const uint64_t step = view_.BeginStep(driver_);
  EXPECT_EQ(view_.Suspend(driver_), FS_STATE);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  Allocate(1);
  EXPECT_TRUE(HasSlab(1));
}

// An engine that wakes up may wait for its weights' memory longer than an
// engine that serves (redirect/room.cc).
TEST_F(EngineViewSuspendTest, ServesFromItsFirstUseAfterItWasTakenUp) {
  Serve();
  EXPECT_FALSE(view_.serves());
  daemon_->Lease(0, 5);
  ASSERT_THAT(Poll(), ElementsAre(Pair(1, FS_KV_LEASED)));
  EXPECT_EQ(view_.Publish(1, 0), FS_OK);
  EXPECT_FALSE(view_.serves());
  EXPECT_EQ(view_.Publish(1, 3), FS_OK);
  EXPECT_TRUE(view_.serves());
  EXPECT_EQ(view_.Publish(1, 0), FS_OK);
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  EXPECT_FALSE(view_.serves());
  ASSERT_EQ(view_.Resume(driver_), FS_OK);
  EXPECT_FALSE(view_.serves());
  Step();
  EXPECT_TRUE(view_.serves());
}

TEST_F(EngineViewSuspendTest, SuspendedViewGivesNoBlocksAndSaysSo) {
  Serve();
  daemon_->Lease(0, 5);
  Step();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  EXPECT_EQ(view_.Suspend(driver_), FS_STATE);
  EXPECT_THAT(KvErrorText(), HasSubstr("already suspended"));
  uint32_t block;
  EXPECT_EQ(view_.Allocate(1, &block), FS_STATE);
  EXPECT_EQ(view_.BeginStep(driver_), 0u);
  EXPECT_EQ(view_.Want(1), FS_STATE);
  EXPECT_EQ(view_.Wait(driver_, 1), -FS_STATE);
  EXPECT_EQ(view_.Activate(driver_), FS_STATE);
  EXPECT_THAT(KvErrorText(), HasSubstr("fs_kv_resume"));
  EXPECT_TRUE(NothingIsToBeTold());
  ASSERT_EQ(view_.Resume(driver_), FS_OK);
  EXPECT_EQ(view_.Resume(driver_), FS_STATE);
  daemon_->Lease(3, 9);
  Step();
  EXPECT_EQ(Allocate(kSlabBlocks).size(), kSlabBlocks);
}

TEST_F(EngineViewSuspendTest, ResumeOfWhatWasNeverSuspendedIsRefused) {
  EXPECT_EQ(view_.Resume(driver_), FS_STATE);
  Serve();
  EXPECT_EQ(view_.Resume(driver_), FS_STATE);
  EXPECT_THAT(KvErrorText(), HasSubstr("no view is suspended"));
}

// The daemon takes back all slabs of the view, whether or not it asked for
// them.
TEST_F(EngineViewSuspendTest, SuspendAnswersSlabsThatWereAskedBack) {
  Serve();
  daemon_->Lease(0, 5);
  daemon_->Lease(1, 6);
  Poll();
  daemon_->AskBack(1, 6);
  Poll();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  EXPECT_TRUE(WasSuspended(1));
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
  daemon_->Free(0);
  daemon_->Free(1);
  ASSERT_EQ(view_.Resume(driver_), FS_OK);
  daemon_->Lease(1, 7);
  EXPECT_THAT(Poll(), ElementsAre(Pair(2, FS_KV_LEASED)));
}

TEST_F(EngineViewSuspendTest, RefusedResumeLeavesTheViewSuspended) {
  Serve();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  daemon_->set_fault(Fault::kRefuseView);
  EXPECT_EQ(view_.Resume(driver_), FS_REFUSED);
  EXPECT_THAT(KvErrorText(), HasSubstr("cannot be taken up again: slabs of"));
  ExpectNothingIsMapped();
  daemon_->set_fault(Fault::kNone);
  EXPECT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
  EXPECT_TRUE(HasSlab(1));
}

// The daemon may have registered the view before its answer was lost.
TEST_F(EngineViewSuspendTest, ResumeWhoseAnswerIsLostTakesItsFloorBack) {
  Serve();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  EXPECT_TRUE(WasSuspended(1));
  daemon_->set_fault(Fault::kCloseAtView);
  EXPECT_EQ(view_.Resume(driver_), FS_NO_DAEMON);
  daemon_->set_fault(Fault::kNone);
  EXPECT_TRUE(NothingIsToBeTold());
  EXPECT_TRUE(WasSuspended(2));
  EXPECT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
}

// Resume registers the view again, and undoes the registration if it fails.
TEST_F(EngineViewSuspendTest, ResumeThatFailsMidwayLeavesTheViewSuspended) {
  Serve();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  for (const Fault fault :
       {Fault::kRefusePoolGranules, Fault::kRefuseActivate}) {
    daemon_->set_fault(fault);
    const int before = daemon_->views().suspended;
    EXPECT_EQ(view_.Resume(driver_), FS_REFUSED);
    ExpectNothingIsMapped();
    EXPECT_TRUE(WasSuspended(before + 1));
  }
  daemon_->set_fault(Fault::kNone);
  EXPECT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
}

TEST_F(EngineViewSuspendTest, ResumeWithoutMemoryLeavesTheViewSuspended) {
  Serve();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  // The calls map the scratch of the first tensor, that of the second tensor,
  // and the pool's granules.
  for (int calls = 0; calls < 8; ++calls) {
    fake_.fail = "cuMemMap";
    fake_.fail_after = calls;
    EXPECT_EQ(view_.Resume(driver_), FS_DRIVER) << calls;
    ExpectNothingIsMapped();
  }
  fake_.fail.clear();
  EXPECT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
}

TEST_F(EngineViewSuspendTest,
       ViewSuspendedUnderADaemonThatDiesIsResumedByTheNext) {
  Serve();
  daemon_->Lease(0, 5);
  Poll();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  KillDaemon();
  EXPECT_EQ(view_.Resume(driver_), FS_NO_DAEMON);
  StartDaemon({.epoch = 43, .slab_count = kSlabs});
  ASSERT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
  EXPECT_THAT(Poll(), IsEmpty());
  daemon_->Lease(0, 1);
  EXPECT_THAT(Poll(), ElementsAre(Pair(1, FS_KV_LEASED)));
}

TEST_F(EngineViewSuspendTest, PoolOfAnotherSizeIsRefused) {
  Serve();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  KillDaemon();
  StartDaemon({.epoch = 43, .slab_count = kSlabs - 1});
  EXPECT_EQ(view_.Resume(driver_), FS_INVALID);
  EXPECT_THAT(KvErrorText(), HasSubstr("another size"));
  ExpectNothingIsMapped();
}

// The view's leases end even if the daemon cannot be notified at once.
TEST_F(EngineViewSuspendTest, SuspensionIsSentOnANewConnection) {
  Serve();
  daemon_->Disconnect();
  link_.Look();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  EXPECT_EQ(daemon_->views().suspended, 0);
  link_.Rejoin();
  link_.TellEnds();
  EXPECT_TRUE(WasSuspended(1));
}

// The keeper keeps running while the engine sleeps. Otherwise the next daemon
// would reserve the engine's slabs until it wakes up.
TEST_F(EngineViewSuspendTest, SleeperTellsTheNextDaemonWhatItMissed) {
  Serve();
  KillDaemon();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  for (int i = 0; i < 2; ++i) {
    const EngineView::Pause pause = view_.Keep(driver_);
    EXPECT_GT(pause.ms, 0u) << "no daemon answers";
    EXPECT_EQ(pause.word, nullptr);
  }
  EngineView::SleepFor({1, nullptr, 0});
  StartDaemon({.slab_count = kSlabs});
  EXPECT_TRUE(NothingIsToBeTold());
  EXPECT_TRUE(WasSuspended(1));
}

TEST_F(EngineViewSuspendTest, SuspendedViewCanBeClosedAndItsTensorsFreed) {
  Serve();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK);
  for (const Redirection& tensor : tensors_) {
    EXPECT_EQ(view_.FreeTensor(driver_, tensor), driver::CUDA_SUCCESS);
  }
  EXPECT_FALSE(view_.in_use());
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_TRUE(
      daemon_->Eventually([](const auto& log) { return log.closed == 1; }));
  EXPECT_EQ(Register(), FS_OK) << KvErrorText();
}

TEST_F(EngineViewSuspendTest, ViewThatCannotBeUnmappedKeepsItsLeases) {
  Serve();
  fake_.fail = "cuMemUnmap";
  EXPECT_EQ(view_.Suspend(driver_), FS_DRIVER);
  EXPECT_EQ(daemon_->views().suspended, 0);
  fake_.fail.clear();
  EXPECT_EQ(view_.Resume(driver_), FS_STATE);
}

// Tests what a view keeps when its daemon ends, and what it sends to the next
// daemon.

TEST_F(EngineViewTest, LeasesStayWhenTheDaemonHasGone) {
  Serve();
  daemon_->Lease(0, 5);
  daemon_->Lease(1, 6);
  Step();
  const auto blocks = Allocate(2 * kSlabBlocks);
  daemon_->AskBack(0, 5);
  const uint64_t step = view_.BeginStep(driver_);
  KillDaemon();
  EXPECT_EQ(Free(blocks), FS_OK);
  EXPECT_EQ(view_.EndStep(step), FS_OK);
  Step();  // it has drained, but no daemon takes it back: linked again
  EXPECT_EQ(Stats().leased_slabs, 2u);
  Allocate(2 * kSlabBlocks);
  EXPECT_EQ(view_.Wait(driver_, 1), -FS_NO_DAEMON);
  EXPECT_THAT(KvErrorText(), HasSubstr("leased slabs stay"));
}

TEST_F(EngineViewTest, OwnPoolGetsBackWhatWasNotTaken) {
  Serve();
  daemon_->Lease(0, 5);
  Poll();
  KillDaemon();
  view_.ReturnSlab(1);
  EXPECT_THAT(Poll(), ElementsAre(Pair(1, FS_KV_LEASED)));
  EXPECT_THAT(Poll(), IsEmpty());
}

TEST_F(EngineViewTest, LinkIsRestoredAndSentWhatIsWantedAndReturned) {
  Serve();
  daemon_->Lease(0, 5);
  daemon_->Lease(1, 6);
  Step();
  const auto blocks = Allocate(kSlabBlocks + 1);
  Step();
  EXPECT_EQ(LastWanted(), 2u);
  daemon_->Disconnect();
  link_.Look();
  ASSERT_EQ(link_.state(), abi::LinkState::kLost);
  EXPECT_EQ(Free(blocks), FS_OK);
  for (uint32_t s = 0; s < 2; ++s) daemon_->AskBack(s, s + 5);
  view_.Keep(driver_);
  EXPECT_EQ(link_.state(), abi::LinkState::kConnected);
  EXPECT_THAT(Returned(2), ElementsAre(Pair(0, 5), Pair(1, 6)));
  EXPECT_EQ(daemon_->views().wanted.back(), 0u);
}

TEST_F(EngineViewTest, WantIsSentAgainOnANewConnection) {
  Serve();
  view_.Want(3);
  EXPECT_EQ(LastWanted(), 3u);
  daemon_->Disconnect();
  link_.Look();
  view_.Keep(driver_);
  EXPECT_EQ(view_.Want(3), FS_OK);
  EXPECT_THAT(daemon_->views().wanted, ElementsAre(3, 3));
}

TEST_F(EngineViewTest, NewDaemonIsNotSentTheOldOnesLeases) {
  Serve();
  daemon_->Lease(0, 5);
  Poll();
  KillDaemon();
  StartDaemon({.epoch = 43, .slab_count = kSlabs});
  Join();
  view_.ReturnSlab(1);
  view_.Want(3);
  EXPECT_THAT(Poll(), ElementsAre(Pair(1, FS_KV_LEASED)));
  EXPECT_EQ(view_.Close(driver_), FS_OK);
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
  EXPECT_THAT(daemon_->views().wanted, IsEmpty());
  EXPECT_EQ(daemon_->views().closed, 0);
}

}  // namespace

}  // namespace fineserve::shim
