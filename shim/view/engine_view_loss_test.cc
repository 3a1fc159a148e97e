// Tests what a view keeps when its daemon goes, and what it sends to the next
// one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

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
