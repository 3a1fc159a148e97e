#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "shim/link/daemon_link_fixture.h"

namespace fineserve::shim {
namespace {

using Fault = FakeDaemon::Fault;
using Timeouts = DaemonLink::Timeouts;
using abi::LinkState;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(DaemonLinkTest, JoinTakesScoreboardAndDeclaredSizesWithoutAWord) {
  StartDaemon({.declared = {64 << 20}});
  EXPECT_EQ(Join(), "");
  EXPECT_EQ(link_.state(), LinkState::kConnected);
  EXPECT_TRUE(declared_.Contains(64 << 20));
  EXPECT_EQ(CopyScoreboard(daemon_->scoreboard()).link_state,
            LinkState::kConnected);
  EXPECT_EQ(CopyScoreboard(daemon_->scoreboard()).epoch, 42u);
  EXPECT_EQ(daemon_->last_hello().pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(daemon_->last_hello().gpu_uuid[1], 2);
}

TEST_F(DaemonLinkTest, EnvironmentsSizesPrevailOverTheDaemons) {
  StartDaemon({.declared = {64 << 20}});
  link_.set_keep_declared(true);
  Join();
  EXPECT_FALSE(declared_.Contains(64 << 20));
}

TEST_F(DaemonLinkTest, WithoutDaemonOneLineNamesPathAndRemedy) {
  const std::string warned = Join();
  EXPECT_THAT(warned, HasSubstr("fineserve: no daemon at " + folder_.path()));
  EXPECT_THAT(warned, HasSubstr("; this process runs without FineServe (start: "
                                "fineserved --gpu GPU-01020300-"));
  EXPECT_EQ(std::count(warned.begin(), warned.end(), '\n'), 1);
  EXPECT_EQ(Join(), "") << "said once";
  EXPECT_EQ(Scoreboard().link_state, LinkState::kNoDaemon);
  EXPECT_THAT(Scoreboard().link_message, HasSubstr("no daemon at"));
}

// Another daemon listens at the socket that its parent keeps.
TEST_F(DaemonLinkTest, DaemonThatEndsAtHelloIsFollowedByAnother) {
  StartDaemon({.fault = Fault::kCloseAtFirstHello});
  EXPECT_EQ(Join(), "");
  EXPECT_EQ(link_.state(), LinkState::kConnected);
  EXPECT_EQ(daemon_->connections(), 2);
}

TEST_F(DaemonLinkTest, DaemonThatComesLaterIsJoined) {
  link_.set_timeouts({.reconnect_pause_ms = 0});
  EXPECT_THAT(Join(), HasSubstr("no daemon at"));
  EXPECT_TRUE(link_.is_due());
  EXPECT_EQ(Join(/*reconnect=*/true), "") << "said once";
  StartDaemon();
  EXPECT_EQ(Join(), "") << "not asked to look again";
  EXPECT_EQ(link_.state(), LinkState::kNoDaemon);
  EXPECT_EQ(Join(/*reconnect=*/true), "");
  EXPECT_EQ(link_.state(), LinkState::kConnected);
  EXPECT_EQ(Scoreboard().link_state, LinkState::kConnected);
  EXPECT_FALSE(link_.is_due());
}

TEST_F(DaemonLinkTest, DaemonThatRefusesLaterIsNotAskedAgain) {
  link_.set_timeouts({.reconnect_pause_ms = 0});
  Join();
  StartDaemon({.fault = Fault::kRefuseMember});
  EXPECT_THAT(Join(/*reconnect=*/true), HasSubstr("64 engines are joined"));
  EXPECT_EQ(link_.state(), LinkState::kRefused);
  EXPECT_EQ(Join(/*reconnect=*/true), "");
  EXPECT_EQ(daemon_->connections(), 1);
}

TEST_F(DaemonLinkTest, NoDaemonIsLookedForAgainAfterAPauseOnly) {
  link_.set_timeouts({.reconnect_pause_ms = 1'000'000});
  Join();
  EXPECT_FALSE(link_.is_due());
  StartDaemon();
  EXPECT_EQ(Join(/*reconnect=*/true), "");
  EXPECT_EQ(daemon_->connections(), 0);
}

TEST_F(DaemonLinkTest, StaleSocketOfADeadDaemonIsNoDaemon) {
  StartDaemon();
  const std::string path = daemon_->path();
  const std::string kept = path + ".kept";
  std::filesystem::create_hard_link(path, kept);
  daemon_.reset();
  std::filesystem::rename(kept, path);
  EXPECT_THAT(Join(), HasSubstr("no daemon at"));
  EXPECT_EQ(link_.state(), LinkState::kNoDaemon);
}

TEST_F(DaemonLinkTest, VersionRefusalNamesBothVersions) {
  StartDaemon({.fault = Fault::kOtherVersion});
  const std::string warned = Join();
  EXPECT_THAT(warned,
              HasSubstr("uses version " + std::to_string(abi::kAbiVersion + 1) +
                        ", but this shim uses version " +
                        std::to_string(abi::kAbiVersion)));
  EXPECT_THAT(warned, HasSubstr("; this process runs without FineServe\n"));
  EXPECT_EQ(link_.state(), LinkState::kRefused);
  EXPECT_THAT(Scoreboard().link_message, HasSubstr("this shim uses"));
}

TEST_F(DaemonLinkTest, RefusalTextReachesUserAndScoreboard) {
  StartDaemon({.fault = Fault::kRefuseMember});
  EXPECT_EQ(Join(),
            "fineserve: 64 engines are joined already; this process runs "
            "without FineServe\n");
  EXPECT_EQ(Scoreboard().link_state, LinkState::kRefused);
  EXPECT_EQ(Scoreboard().link_message, "64 engines are joined already");
}

TEST_F(DaemonLinkTest, SocketOfAnotherUserIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  StartDaemon();
  ASSERT_EQ(chown(daemon_->path().c_str(), 12345, 12345), 0);
  EXPECT_THAT(Join(), HasSubstr("belongs to uid 12345"));
  EXPECT_EQ(daemon_->connections(), 0);
}

TEST_F(DaemonLinkTest, SocketInAFolderThatOthersMayEnterIsNotUsed) {
  StartDaemon();
  ASSERT_EQ(chmod(folder_.path().c_str(), 0777), 0);
  EXPECT_THAT(Join(), HasSubstr("make its mode 0700"));
  EXPECT_EQ(daemon_->connections(), 0);
}

TEST_F(DaemonLinkTest, SilentDaemonIsGivenUpAfterTheTimeout) {
  StartDaemon({.fault = Fault::kSilentAtHello});
  link_.set_timeouts({.join_ms = 50});
  EXPECT_THAT(Join(), HasSubstr("this process runs without FineServe"));
  EXPECT_EQ(link_.state(), LinkState::kNoDaemon);
}

TEST_F(DaemonLinkTest, LeaseIsRoundedUpToWholeSlabs) {
  StartDaemon();
  Join();
  Lease lease;
  ASSERT_EQ(link_.LeaseSlabs((8 << 20) + 1, &lease), Exchange::kOk);
  EXPECT_EQ(lease.granule_count, 6u);
  EXPECT_EQ(lease.bytes(), 12u << 20);
  EXPECT_EQ(daemon_->free_slabs(), 97u);
  link_.Return(lease.id, lease.epoch);
  EXPECT_TRUE(daemon_->GetsBack(100));
}

TEST_F(DaemonLinkTest, ExhaustedPoolIsDistinguishedFromRefusalAndLoss) {
  StartDaemon({.slab_count = 3});
  Join();
  Lease lease;
  EXPECT_EQ(link_.LeaseSlabs(16 << 20, &lease), Exchange::kExhausted);
  EXPECT_EQ(link_.LeaseSlabs(UINT64_MAX, &lease), Exchange::kExhausted);
  EXPECT_EQ(link_.LeaseSlabs(12 << 20, &lease), Exchange::kOk);
  EXPECT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kExhausted);
  EXPECT_EQ(link_.state(), LinkState::kConnected);
}

TEST_F(DaemonLinkTest, GranulesComeInBatchesThatOneMessageCarries) {
  StartDaemon({.granules_per_slab = 300});
  Join();
  Lease lease;
  ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  abi::Received batch;
  ASSERT_EQ(link_.Granules(lease, 0, &batch), Exchange::kOk);
  EXPECT_EQ(batch.descriptor_count(), 253u);
  ASSERT_EQ(link_.Granules(lease, 253, &batch), Exchange::kOk);
  EXPECT_EQ(batch.descriptor_count(), 47u);
}

// Lowers the limit of open files so that exactly `room` more fit.
class FewDescriptors {
 public:
  explicit FewDescriptors(int room) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = before_;
    int next = 0;
    for (; room > 0 || fcntl(next, F_GETFD) >= 0; ++next) {
      if (fcntl(next, F_GETFD) < 0) --room;
    }
    lower.rlim_cur = static_cast<rlim_t>(next);
    setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

TEST_F(DaemonLinkTest, LostDescriptorsHalveTheBatch) {
  StartDaemon({.granules_per_slab = 64});
  Join();
  Lease lease;
  ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  const FewDescriptors few(20);
  abi::Received batch;
  ASSERT_EQ(link_.Granules(lease, 0, &batch), Exchange::kOk);
  EXPECT_EQ(batch.descriptor_count(), 16u);
  EXPECT_THAT(daemon_->batch_sizes_asked(), ElementsAre(64, 32, 16));
}

TEST_F(DaemonLinkTest, WithoutRoomForOneDescriptorTheLinkStays) {
  StartDaemon();
  Join();
  Lease lease;
  ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  const FewDescriptors few(0);
  abi::Received batch;
  EXPECT_EQ(link_.Granules(lease, 0, &batch), Exchange::kRefused);
  EXPECT_EQ(link_.state(), LinkState::kConnected);
}

// SELinux loses descriptors this way if it keeps a process from using
// another's.
TEST_F(DaemonLinkTest, WelcomeWhoseDescriptorsAreLostNamesTheCures) {
  StartDaemon({.fault = Fault::kLoseDescriptors});
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  testing::internal::CaptureStderr();
  link_.Join(kGpu, /*reconnect=*/false);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("give it the daemon's label; this process runs without "
                        "FineServe"));
  EXPECT_NE(link_.state(), LinkState::kConnected);
}

struct Nonsense {
  const char* name;
  Fault fault;
};
class MisbehavingDaemon : public DaemonLinkTest,
                          public testing::WithParamInterface<Nonsense> {};

TEST_P(MisbehavingDaemon, LosesTheLinkWithOneWarning) {
  StartDaemon({.fault = GetParam().fault});
  // Only a silent daemon is detected by the timeout.
  const bool silent = GetParam().fault == Fault::kSilentAtLease;
  link_.set_timeouts(
      {.join_ms = kPatienceMs, .request_ms = silent ? 50 : kPatienceMs});
  Join();
  Lease lease;
  abi::Received batch;
  testing::internal::CaptureStderr();
  Exchange got = link_.LeaseSlabs(1, &lease);
  if (got == Exchange::kOk) got = link_.Granules(lease, 0, &batch);
  EXPECT_EQ(got, Exchange::kLost);
  EXPECT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kLost);
  const std::string warned = testing::internal::GetCapturedStderr();
  EXPECT_EQ(link_.state(), LinkState::kLost);
  EXPECT_EQ(std::count(warned.begin(), warned.end(), '\n'), 1) << warned;
  EXPECT_THAT(warned, HasSubstr("fineserve: lost the daemon at "));
  EXPECT_EQ(Scoreboard().link_state, LinkState::kLost);
  EXPECT_THAT(Scoreboard().link_message, HasSubstr("lost the daemon"));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, MisbehavingDaemon,
    testing::Values(Nonsense{"ClosesAtLease", Fault::kCloseAtLease},
                    Nonsense{"IsSilentAtLease", Fault::kSilentAtLease},
                    Nonsense{"AnswersOutOfTurn", Fault::kWrongSequenceAtLease},
                    Nonsense{"ClosesMidLease", Fault::kCloseAtGranules},
                    Nonsense{"SendsAnotherLeasesGranules",
                             Fault::kWrongGranules}),
    [](const auto& info) { return info.param.name; });

TEST_F(DaemonLinkTest, NewDaemonIsJoinedAfterALossAndOldLeasesStayAway) {
  StartDaemon();
  Join();
  Lease old;
  ASSERT_EQ(link_.LeaseSlabs(1, &old), Exchange::kOk);
  daemon_.reset();
  testing::internal::CaptureStderr();
  Lease lease;
  EXPECT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kLost);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(link_.Join(kGpu, /*reconnect=*/false), LinkState::kLost);
  StartDaemon({.epoch = 43});
  EXPECT_EQ(link_.Join(kGpu, /*reconnect=*/true), LinkState::kConnected);
  ASSERT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kOk);
  EXPECT_EQ(lease.epoch, 43u);
  link_.Return(old.id, old.epoch);
  EXPECT_THAT(daemon_->returned(), ElementsAre());
}

TEST_F(DaemonLinkTest, SearchForANewDaemonPausesAfterAFailure) {
  StartDaemon();
  link_.set_timeouts({.join_ms = kPatienceMs,
                      .request_ms = kPatienceMs,
                      .reconnect_pause_ms = 1'000'000'000});
  Join();
  daemon_.reset();
  Lease lease;
  testing::internal::CaptureStderr();
  link_.LeaseSlabs(1, &lease);
  EXPECT_EQ(link_.Join(kGpu, true), LinkState::kLost);
  StartDaemon();
  EXPECT_EQ(link_.Join(kGpu, true), LinkState::kLost);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(daemon_->connections(), 0);
}

TEST_F(DaemonLinkTest, SecondGpuHasNoDaemon) {
  StartDaemon();
  Join();
  EXPECT_EQ(link_.Join(kOtherGpu, true), LinkState::kNoDaemon);
  EXPECT_EQ(link_.state(), LinkState::kConnected);
}

int OwnSocket() {
  for (int fd = 3; fd < 1000; ++fd) {
    struct stat st;
    int type = 0;
    socklen_t bytes = sizeof(type);
    sockaddr_storage peer;
    socklen_t peer_bytes = sizeof(peer);
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &type, &bytes) == 0 &&
        type == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
        peer_bytes == sizeof(sa_family_t)) {
      return fd;  // unnamed: the client's end
    }
  }
  return -1;
}

TEST_F(DaemonLinkTest, FileThatTookOurNumberIsNeitherWrittenNorClosed) {
  StartDaemon();
  Join();
  const int socket = OwnSocket();
  ASSERT_GE(socket, 0);
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC), 0);
  ASSERT_EQ(dup2(pipe_ends[1], socket), socket);
  Lease lease;
  testing::internal::CaptureStderr();
  EXPECT_EQ(link_.LeaseSlabs(1, &lease), Exchange::kLost);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("closed by this program"));
  char byte;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), -1);
  EXPECT_EQ(fcntl(socket, F_GETFD), 0) << "still open";
  close(socket);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

// Tests of a link that is lost while its daemon lives, and of requests that
// have ended.

constexpr uint64_t kTwoSlabs = 8 << 20;

class DaemonLinkLossTest : public DaemonLinkTest {
 protected:
  // Loses the connection while the daemon lives on.
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

// One thread waits for slabs that another thread frees.
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
