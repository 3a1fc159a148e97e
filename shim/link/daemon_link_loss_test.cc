// Tests of a link that is lost while its daemon lives, and of what has ended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <string>
#include <thread>

#include "shim/link/daemon_link_fixture.h"

namespace fineserve::shim {
namespace {

using abi::LinkState;
using testing::ElementsAre;
using Fault = FakeDaemon::Fault;
using Timeouts = DaemonLink::Timeouts;

constexpr uint64_t kTwoSlabs = 8 << 20;

class DaemonLinkLossTest : public DaemonLinkTest {
 protected:
  // Loses the connection to a daemon that lives on.
  void LoseLink() {
    testing::internal::CaptureStderr();
    daemon_->Disconnect();
    link_.Look();
    testing::internal::GetCapturedStderr();
    ASSERT_EQ(link_.state(), LinkState::kLost);
  }
};

TEST_F(DaemonLinkLossTest,
       LeaseThatEndsWhileTheLinkIsAwayIsReportedWhenItIsBack) {
  StartDaemon();
  Join();
  Lease leases[2];
  for (Lease& lease : leases) {
    ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  }
  LoseLink();
  for (const Lease& lease : leases) link_.Return(lease.id, lease.epoch);
  EXPECT_TRUE(link_.has_kept_ends());
  link_.Rejoin();
  EXPECT_EQ(link_.state(), LinkState::kConnected);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1, 2));
  EXPECT_EQ(daemon_->connections(), 2);
}

// One thread waits for slabs that another one frees.
TEST_F(DaemonLinkLossTest, LeaseThatEndsWhileAnotherIsAwaitedIsReported) {
  StartDaemon({.fault = Fault::kWaitForSlabs, .slab_count = 2});
  Timeouts patient = kPatient;
  patient.request_ms = 5'000;
  link_.set_timeouts(patient);
  Join();
  Lease lease, next;
  ASSERT_EQ(link_.LeaseSlabs(kTwoSlabs, &lease), Exchange::kOk);
  Exchange outcome = Exchange::kLost;
  std::thread waits([&] { outcome = link_.LeaseSlabs(kTwoSlabs, &next); });
  EXPECT_TRUE(
      FakeDaemon::Becomes([&] { return daemon_->leases_asked() == 2; }));
  link_.Return(lease.id, lease.epoch);
  waits.join();
  EXPECT_EQ(outcome, Exchange::kOk);
  EXPECT_EQ(next.id, 2u);
  link_.Return(next.id, next.epoch);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1, 2));
}

TEST_F(DaemonLinkLossTest, LeaseWhoseGranulesWereLostIsReturnedLater) {
  StartDaemon({.fault = Fault::kCloseAtGranules});
  Join();
  Lease lease;
  ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  abi::Received batch;
  testing::internal::CaptureStderr();
  EXPECT_EQ(link_.Granules(lease, 0, &batch), Exchange::kLost);
  testing::internal::GetCapturedStderr();
  link_.Return(lease.id, lease.epoch);
  link_.Rejoin();
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  EXPECT_TRUE(daemon_->GetsBack(100));
}

TEST_F(DaemonLinkLossTest,
       ReturnDoesNotWaitForItsAnswerAndIsToldUntilItHasOne) {
  StartDaemon({.fault = Fault::kSilentAtReturn});
  link_.set_timeouts(
      {.join_ms = kPatienceMs, .request_ms = 50, .reconnect_pause_ms = 0});
  Join();
  Lease lease;
  ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  link_.Return(lease.id, lease.epoch);
  EXPECT_EQ(link_.state(), LinkState::kConnected) << "it waited";
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  LoseLink();
  link_.Rejoin();
  EXPECT_THAT(daemon_->returned(), ElementsAre(1, 1));
}

TEST_F(DaemonLinkLossTest,
       ReturnDuringAnotherThreadsExchangeIsReportedAfterIt) {
  StartDaemon({.fault = Fault::kSilentAtLease});
  Join();
  std::thread other([&] {
    Lease lease;
    link_.LeaseSlabs(1, &lease);  // waits until the daemon ends
  });
  EXPECT_TRUE(
      FakeDaemon::Becomes([&] { return daemon_->leases_asked() == 1; }));
  link_.Return(7, 42);
  EXPECT_EQ(link_.state(), LinkState::kConnected) << "it waited";
  EXPECT_TRUE(link_.has_unconfirmed_ends());
  testing::internal::CaptureStderr();
  daemon_.reset();
  other.join();
  testing::internal::GetCapturedStderr();
}

TEST_F(DaemonLinkLossTest,
       RequestIsMadeAgainIfTheLossShowsWhenEndsAreReported) {
  StartDaemon({.fault = Fault::kSilentAtReturn});
  Join();
  Lease lease;
  ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  link_.Return(lease.id, lease.epoch);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  daemon_->set_fault(Fault::kNone);
  daemon_->Disconnect();
  EXPECT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1, 1));
  EXPECT_EQ(daemon_->connections(), 2);
}

TEST_F(DaemonLinkLossTest, ManyReturnsAtOnceAllArriveBeforeTheNextRequest) {
  constexpr uint32_t kLeases = 500;
  StartDaemon({.slab_count = kLeases});
  Join();
  for (uint32_t i = 0; i < kLeases; ++i) {
    Lease lease;
    ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  }
  for (uint32_t i = 1; i <= kLeases; ++i) link_.Return(i, 42);
  Lease all;
  EXPECT_EQ(link_.LeaseSlabs(kLeases * uint64_t{4 << 20}, &all), Exchange::kOk);
  EXPECT_FALSE(link_.has_unconfirmed_ends());
}

TEST_F(DaemonLinkLossTest, ProcessThatRenamedItselfRejoinsAsTheSameEngine) {
  StartDaemon();
  Join();
  const std::string name = daemon_->last_hello().engine_name;
  char before[32] = {};
  prctl(PR_GET_NAME, before);
  prctl(PR_SET_NAME, "another");
  LoseLink();
  link_.Rejoin();
  prctl(PR_SET_NAME, before);
  EXPECT_EQ(daemon_->last_hello().engine_name, name);
}

}  // namespace
}  // namespace fineserve::shim
