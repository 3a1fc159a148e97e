// Tests of an engine that serves with its own block pool.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "daemon/contract/abi/scoreboard_reader.h"
#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using Fault = FakeDaemon::Fault;

TEST_F(EngineViewTest, OwnPoolIsNotifiedOfEachLeaseAndEachAskBackOnce) {
  Serve();
  EXPECT_THAT(Poll(), IsEmpty());
  daemon_->Lease(1, 5);
  daemon_->Lease(2, 6);
  EXPECT_THAT(Poll(1), ElementsAre(Pair(2, FS_KV_LEASED)));
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1) << "one change is unreported";
  EXPECT_THAT(Poll(), ElementsAre(Pair(3, FS_KV_LEASED)));
  EXPECT_THAT(Poll(), IsEmpty());
  daemon_->AskBack(1, 5);
  EXPECT_THAT(Poll(), ElementsAre(Pair(2, FS_KV_ASKED_BACK)));
  EXPECT_EQ(view_.ReturnSlab(2), FS_OK);
  EXPECT_EQ(view_.ReturnSlab(2), FS_INVALID);
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(Returned(1), ElementsAre(Pair(1, 5)));
}

TEST_F(EngineViewTest, WantIsSentOnceForEachChange) {
  Serve();
  for (const uint32_t want : {3u, 3u, 2u}) EXPECT_EQ(view_.Want(want), FS_OK);
  EXPECT_EQ(LastWanted(), 2u);
  EXPECT_THAT(daemon_->views().wanted, ElementsAre(3, 2));
}

// An exchange of another thread may take as long as a zero fill.
TEST_F(EngineViewTest, BusyLinkNeitherBlocksTheSchedulerNorLosesItsNotices) {
  Serve(FS_KV_VIEW, {.fault = Fault::kSilentAtLease});
  daemon_->Lease(1, 5);
  Poll();
  std::atomic<bool> asking{true};
  std::thread other([&] {
    Lease lease;
    link_.LeaseSlabs(1, &lease);  // waits until the daemon ends
    asking = false;
  });
  EXPECT_TRUE(
      FakeDaemon::Becomes([&] { return daemon_->leases_asked() == 1; }));
  view_.ReturnSlab(2);
  EXPECT_EQ(view_.Want(4), FS_OK);
  EXPECT_TRUE(asking) << "it did not wait";
  EXPECT_EQ(Stats().leased_slabs, 1u);
  daemon_.reset();
  other.join();
}

TEST_F(EngineViewTest, WaitEndsWithAChangeOrItsTimeout) {
  Serve();
  EXPECT_EQ(view_.Wait(driver_, 1), 0);
  std::thread daemon([&] {
    usleep(20'000);
    daemon_->Lease(1, 5);
  });
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1);
  daemon.join();
  EXPECT_EQ(view_.Wait(driver_, kPatienceMs), 1) << "until a poll";
  EXPECT_EQ(Poll().size(), 1u);
  EXPECT_EQ(view_.Wait(driver_, 1), 0);
  EXPECT_EQ(view_.Wait(driver_, -1), -FS_INVALID);
}

TEST_F(EngineViewTest, OwnPoolPublishesWhatItsSlabsDo) {
  Serve();
  EXPECT_EQ(view_.Publish(3, 17), FS_OK);
  EXPECT_EQ(view_.Publish(UINT32_MAX, 17), FS_OK) << "ignored";
  const auto scoreboard = abi::ReadViewScoreboard(daemon_->view_scoreboard());
  ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
  EXPECT_EQ(scoreboard->used[3], 17u);
}

TEST_F(EngineViewTest, OneEngineUsesOneOfTheTwoInterfaces) {
  Serve();
  Step();
  fs_kv_change change;
  EXPECT_EQ(view_.Poll(driver_, &change, 1), -FS_STATE);
}

}  // namespace
}  // namespace fineserve::shim
