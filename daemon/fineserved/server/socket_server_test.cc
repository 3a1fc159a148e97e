// Tests with a client on one end of a real socket. The test runs the server's
// loop step by step, without a thread and without waiting.
#include "daemon/fineserved/server/socket_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/types/optional.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "daemon/fineserved/backing/sim_backing.h"
#include "daemon/fineserved/server/endpoint.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::server {
namespace {

using abi::MakeMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

abi::ViewRequest ViewOf(uint32_t planes) {
  auto request = MakeMessage<abi::ViewRequest>(3);
  request.mode = abi::ViewMode::kView;
  request.planes = planes;
  request.page_bytes = 1024;
  request.block_tokens = 16;
  return request;
}

// A device that can be held up.
class HeldQueue final : public backing::InlineQueue {
 public:
  using InlineQueue::InlineQueue;
  std::vector<backing::Completion> Take() override {
    if (held_) return {};
    return InlineQueue::Take();
  }
  void Hold() { held_ = true; }
  void GoOn() { held_ = false; }

 private:
  bool held_ = false;
};

class SocketServerTest : public ::testing::Test {
 protected:
  SocketServerTest() {
    setenv("FINESERVE_RUNTIME_DIR", folder_.c_str(), 1);
    identity_.epoch = 77;
    identity_.geometry = {4096, 4, 300};
    identity_.gpu_uuid[0] = 5;
    backing_ = std::make_unique<backing::SimBacking>(
        *backing::SimBacking::Create(identity_.geometry));
    table_ = *slab::TableWriter::Create(identity_, &clock_);
    device_ = std::make_unique<HeldQueue>(backing_.get());
    pool_ = std::make_unique<PoolService>(device_.get(), identity_.geometry,
                                          identity_.geometry.slab_count,
                                          table_.get(), &clock_);
    server_ = std::make_unique<SocketServer>(
        &loop_, pool_.get(), table_.get(), identity_, &clock_,
        [](const std::string&) {
          return SocketServer::KvRules{
              {64, 128}, {RuleNamed("first"), RuleNamed("second")}};
        });
    endpoint_ =
        std::make_unique<Endpoint>(*Endpoint::Claim("", identity_.gpu_uuid));
    server_->Listen(*endpoint_->Listen());
    Settle();
  }
  ~SocketServerTest() override { std::filesystem::remove_all(folder_); }

  static abi::Rule RuleNamed(const char* name) {
    abi::Rule rule = {};
    abi::CopyText(rule.name, name);
    return rule;
  }

  static std::string MakeFolder() {
    char path[] = "/tmp/fineserve-server-XXXXXX";
    return mkdtemp(path);
  }

  driver::Descriptor Connect() {
    driver::Descriptor fd(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(base::ConnectUnix(fd.get(), endpoint_->socket_path()));
    return fd;
  }

  void Settle() {
    EXPECT_TRUE(pool_->Poll().ok());
    server_->Settle();
  }
  // Runs the loop, and the work that follows each of its rounds, until nothing
  // is pending.
  void Turn() {
    while (loop_.RunOnce()) {
    }
    Settle();
  }

  template <typename M>
  M Ask(const driver::Descriptor& fd, const auto& request) {
    EXPECT_EQ(abi::Send(fd.get(), request), 0);
    Turn();
    return Answer<M>(fd);
  }
  template <typename M>
  M Answer(const driver::Descriptor& fd) {
    M answer = {};
    EXPECT_EQ(received_.ReceiveFrom(fd.get()), 0);
    EXPECT_TRUE(received_.As(&answer));
    return answer;
  }

  static abi::Hello HelloFrom(const char* name) {
    auto hello = MakeMessage<abi::Hello>(1);
    hello.role = abi::Role::kMember;
    hello.pid = static_cast<uint32_t>(getpid());
    abi::CopyText(hello.engine_name, name);
    return hello;
  }
  static abi::Hello ObserversHello() {
    auto hello = HelloFrom("");
    hello.role = abi::Role::kObserver;
    return hello;
  }
  static abi::LeaseRequest LeaseOf(uint32_t slabs) {
    auto request = MakeMessage<abi::LeaseRequest>(2);
    request.slab_count = slabs;
    return request;
  }
  driver::Descriptor Member(const char* name) {
    driver::Descriptor fd = Connect();
    Ask<abi::Welcome>(fd, HelloFrom(name));
    return fd;
  }
  void Activate(const driver::Descriptor& fd, uint32_t slabs, uint32_t wanted) {
    auto activate = MakeMessage<abi::ActivateRequest>(5);
    activate.slabs = slabs;
    activate.wanted = wanted;
    Ask<abi::ActivateDone>(fd, activate);
    Settle();
  }
  // Returns the connection of the engine's only member, whose active view wants
  // `wanted` slabs.
  driver::Descriptor Viewer(uint32_t wanted) {
    driver::Descriptor fd = Member("view");
    Ask<abi::ViewAnswer>(fd, ViewOf(4));
    Activate(fd, 300, wanted);
    return fd;
  }
  // Returns the number of slabs in the view of the first engine.
  uint32_t InView() { return pool_->slabs().HeldBy(slab::EngineId{1}).in_view; }
  // Gives back the whole pool, whose zeroing completes later, and asks for 7
  // slabs.
  void AskWhileAllIsZeroed(const driver::Descriptor& fd) {
    auto back = MakeMessage<abi::ReturnRequest>(4);
    back.lease = Ask<abi::LeaseGrant>(fd, LeaseOf(300)).lease;
    backing_->set_zeroing_completes(false);
    Ask<abi::ReturnDone>(fd, back);
    EXPECT_EQ(abi::Send(fd.get(), LeaseOf(7)), 0);
    Turn();
  }
  // Puts 298 slabs of a dead engine in quarantine until EndQuarantine.
  void BeginQuarantine() {
    backing_->set_foreign_pids(true);
    pool_->Lease(*pool_->Join("dead", geteuid(), 99), 298, 999);
    pool_->Exited(99);
  }
  void EndQuarantine() {
    backing_->set_foreign_pids(false);
    clock_.AdvanceNs(slab::PoolState::kListNs);
    Settle();
    Settle();
  }
  // Returns a request for a view whose floor needs some of the slabs in
  // quarantine.
  static abi::ViewRequest LargeView() {
    abi::ViewRequest view = ViewOf(4);
    view.floor_blocks = 3 * 4;
    return view;
  }
  // Leases a slab and asks for its granules, which the device does not export
  // while it is held. Returns the lease.
  uint32_t AskGranulesOfABusyDevice(const driver::Descriptor& fd) {
    auto granules = MakeMessage<abi::GranuleRequest>(3);
    granules.lease = Ask<abi::LeaseGrant>(fd, LeaseOf(1)).lease;
    granules.max_count = 4;
    device_->Hold();
    EXPECT_EQ(abi::Send(fd.get(), granules), 0);
    Turn();
    return granules.lease;
  }
  // Forks a process that joins as engine "a" and sends `request`. A child of
  // that process keeps the connection open until `hold` is closed.
  pid_t ForkMember(const auto& request, driver::Descriptor* hold) {
    int ready[2];
    int held[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(held), 0);
    const pid_t member = fork();
    if (member == 0) {
      close(held[1]);
      driver::Descriptor fd = Connect();
      abi::Send(fd.get(), HelloFrom("a"));
      abi::Send(fd.get(), request);
      char byte;
      if (fork() == 0) _exit(read(held[0], &byte, 1) == 1 ? 1 : 0);
      _exit(write(ready[1], "x", 1) == 1 ? (pause(), 0) : 1);
    }
    close(held[0]);
    *hold = driver::Descriptor(held[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return member;
  }
  static void Kill(pid_t pid) {
    kill(pid, SIGKILL);
    int status;
    waitpid(pid, &status, 0);
  }
  uint64_t dropped() { return table_->counters().messages_dropped.load(); }

  const std::string folder_ = MakeFolder();
  ManualClock clock_;
  slab::TableIdentity identity_;
  std::unique_ptr<backing::SimBacking> backing_;
  std::unique_ptr<slab::TableWriter> table_;
  std::unique_ptr<HeldQueue> device_;
  std::unique_ptr<PoolService> pool_;
  EventLoop loop_;
  std::unique_ptr<SocketServer> server_;
  std::unique_ptr<Endpoint> endpoint_;
  abi::Received received_;
};

TEST_F(SocketServerTest, SocketIsOurUsersAlone) {
  struct stat st;
  ASSERT_EQ(stat(endpoint_->socket_path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(SocketServerTest, SecondDaemonForTheGpuIsRefusedNamingTheFirst) {
  const auto second = Endpoint::Claim("", identity_.gpu_uuid);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("pid " + std::to_string(getpid())));
}

TEST_F(SocketServerTest, FolderThatOthersCanEnterIsRefused) {
  chmod(folder_.c_str(), 0755);
  EXPECT_EQ(Endpoint::Claim("", identity_.gpu_uuid).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(SocketServerTest, MemberIsWelcomedWithTableAndScoreboard) {
  driver::Descriptor fd = Connect();
  const auto welcome = Ask<abi::Welcome>(fd, HelloFrom("a"));
  EXPECT_EQ(welcome.epoch, 77u);
  EXPECT_EQ(welcome.slab_count, 300u);
  EXPECT_EQ(welcome.declared_size_count, 2u);
  EXPECT_EQ(welcome.declared_sizes[1], 128u);
  ASSERT_EQ(received_.descriptor_count(), 2u);
}

// The loop pauses while no descriptor is free; otherwise, Turn would not end.
TEST_F(SocketServerTest, ConnectionWaitsForADescriptorToBeFree) {
  clock_.AdvanceNs(RealClock().NowNs());  // the loop's alarms are real
  driver::Descriptor fd = Connect();
  rlimit before, none = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  none.rlim_max = before.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Turn();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(abi::Send(fd.get(), HelloFrom("a")), 0);
  EXPECT_TRUE(process::Eventually([&] {
    Turn();
    pollfd answer = {fd.get(), POLLIN, 0};
    return poll(&answer, 1, 0) > 0;
  }));
  EXPECT_EQ(Answer<abi::Welcome>(fd).epoch, 77u);
}

TEST_F(SocketServerTest, MemberAsksForItsRulesOneByOne) {
  driver::Descriptor fd = Connect();
  EXPECT_EQ(Ask<abi::Welcome>(fd, HelloFrom("a")).rule_count, 2u);
  auto request = abi::MakeMessage<abi::RuleRequest>(9);
  request.index = 1;
  const auto answer = Ask<abi::RuleAnswer>(fd, request);
  EXPECT_EQ(answer.index, 1u);
  EXPECT_STREQ(answer.rule.name, "second");
  request.index = 2;
  EXPECT_EQ(Ask<abi::Refused>(fd, request).code, abi::RefusalCode::kMalformed);
}

TEST_F(SocketServerTest, ObserverGetsTheTableAndMayAskForNoSlab) {
  driver::Descriptor fd = Connect();
  EXPECT_EQ(Ask<abi::Welcome>(fd, ObserversHello()).engine_id, 0u);
  EXPECT_EQ(received_.descriptor_count(), 1u);
  EXPECT_EQ(Ask<abi::Refused>(fd, LeaseOf(1)).code,
            abi::RefusalCode::kMalformed);
}

TEST_F(SocketServerTest, ObserverLimitsAnEngine) {
  driver::Descriptor engine = Member("a");
  EXPECT_EQ(Ask<abi::LeaseGrant>(engine, LeaseOf(5)).slab_count, 5u);
  driver::Descriptor fd = Connect();
  Ask<abi::Welcome>(fd, ObserversHello());
  auto limit = MakeMessage<abi::LimitRequest>(9);
  limit.engine_id = 1;
  limit.slabs = 6;
  const auto done = Ask<abi::LimitDone>(fd, limit);
  EXPECT_EQ(done.header.sequence, 9u);
  EXPECT_EQ(done.slabs, 6u);
  EXPECT_EQ(done.held, 5u);
  EXPECT_EQ(done.whole, 5u);
  EXPECT_EQ(abi::ReadTable(table_->descriptor())->engines.at(0).limit, 6u);
  const auto refused = Ask<abi::Refused>(engine, LeaseOf(2));
  EXPECT_EQ(refused.code, abi::RefusalCode::kPoolExhausted);
  EXPECT_THAT(refused.text, HasSubstr("limit of 6 slabs"));
  limit.engine_id = 2;
  EXPECT_EQ(Ask<abi::Refused>(fd, limit).code, abi::RefusalCode::kLimit);
}

TEST_F(SocketServerTest, EngineMayNotLimitAnother) {
  driver::Descriptor fd = Member("a");
  auto limit = MakeMessage<abi::LimitRequest>(9);
  limit.engine_id = 1;
  EXPECT_EQ(Ask<abi::Refused>(fd, limit).code, abi::RefusalCode::kMalformed);
}

TEST_F(SocketServerTest, OtherVersionIsRefusedNamingBoth) {
  driver::Descriptor fd = Connect();
  auto hello = HelloFrom("a");
  hello.header.abi_version = 41;
  const auto refused = Ask<abi::Refused>(fd, hello);
  EXPECT_EQ(refused.code, abi::RefusalCode::kVersion);
  EXPECT_THAT(refused.text, HasSubstr("ABI 41"));
  EXPECT_THAT(refused.text, HasSubstr("daemon speaks ABI " +
                                      std::to_string(abi::kAbiVersion)));
}

TEST_F(SocketServerTest, WrongGpuIsRefused) {
  driver::Descriptor fd = Connect();
  auto hello = HelloFrom("a");
  hello.gpu_uuid[3] = 9;
  EXPECT_EQ(Ask<abi::Refused>(fd, hello).code, abi::RefusalCode::kWrongGpu);
}

TEST_F(SocketServerTest, PidThatIsNotTheKernelsIsRefused) {
  driver::Descriptor fd = Connect();
  auto hello = HelloFrom("a");
  hello.pid = 1;
  EXPECT_EQ(Ask<abi::Refused>(fd, hello).code, abi::RefusalCode::kNotPermitted);
}

TEST_F(SocketServerTest, GarbageIsDroppedCountedAndEndsTheConnection) {
  driver::Descriptor fd = Connect();
  const uint64_t before = dropped();
  abi::SendBytes(fd.get(), "hello, world", 12, nullptr, 0);
  Turn();
  EXPECT_EQ(dropped(), before + 1);
  EXPECT_EQ(received_.ReceiveFrom(fd.get()), EPIPE);
}

TEST_F(SocketServerTest, LeasedGranulesComeInBatchesAndAreTheSlabs) {
  driver::Descriptor fd = Member("a");
  const auto grant = Ask<abi::LeaseGrant>(fd, LeaseOf(100));
  EXPECT_EQ(grant.slab_count, 100u);
  uint32_t got = 0;
  while (got < 400) {
    auto request = MakeMessage<abi::GranuleRequest>(3);
    request.lease = grant.lease;
    request.first = got;
    request.max_count = 1000;
    const auto batch = Ask<abi::GranuleBatch>(fd, request);
    ASSERT_GE(batch.count, 1u);
    ASSERT_LE(batch.count, abi::kMaxDescriptorsPerMessage);
    EXPECT_EQ(batch.count, received_.descriptor_count());
    got += batch.count;
  }
  EXPECT_EQ(got, 400u);
}

TEST_F(SocketServerTest, GranulesOfAnotherEnginesLeaseAreRefused) {
  driver::Descriptor a = Member("a");
  driver::Descriptor b = Member("b");
  auto request = MakeMessage<abi::GranuleRequest>(3);
  request.lease = Ask<abi::LeaseGrant>(a, LeaseOf(1)).lease;
  request.max_count = 1;
  EXPECT_EQ(Ask<abi::Refused>(b, request).code,
            abi::RefusalCode::kUnknownLease);
  EXPECT_EQ(received_.descriptor_count(), 0u);
}

TEST_F(SocketServerTest, ExhaustedPoolIsRefusedNamingWhatIsLeft) {
  driver::Descriptor fd = Member("a");
  Ask<abi::LeaseGrant>(fd, LeaseOf(298));
  const auto refused = Ask<abi::Refused>(fd, LeaseOf(3));
  EXPECT_EQ(refused.code, abi::RefusalCode::kPoolExhausted);
  EXPECT_THAT(refused.text, HasSubstr("2 slabs left, 3 wanted"));
}

// A slow driver holds up only the requests that wait for it.
TEST_F(SocketServerTest, PeersAreAnsweredWhileTheDeviceIsBusy) {
  const driver::Descriptor a = Member("a");
  AskGranulesOfABusyDevice(a);
  EXPECT_EQ(received_.ReceiveFrom(a.get()), EAGAIN);
  const driver::Descriptor b = Member("b");
  EXPECT_EQ(Ask<abi::LeaseGrant>(b, LeaseOf(2)).slab_count, 2u);
  device_->GoOn();
  Turn();
  EXPECT_EQ(Answer<abi::GranuleBatch>(a).count, 4u);
  EXPECT_EQ(received_.descriptor_count(), 4u);
}

// By the time of their export, another engine may have the granules.
TEST_F(SocketServerTest, GranulesReturnedBeforeTheirExportAreNotSent) {
  const driver::Descriptor a = Member("a");
  auto back = MakeMessage<abi::ReturnRequest>(4);
  back.lease = AskGranulesOfABusyDevice(a);
  Ask<abi::ReturnDone>(a, back);
  device_->GoOn();
  Turn();
  EXPECT_EQ(Answer<abi::Refused>(a).code, abi::RefusalCode::kUnknownLease);
  EXPECT_EQ(received_.descriptor_count(), 0u);
}

TEST_F(SocketServerTest, GranulesOfAPeerThatLeftAreClosed) {
  driver::Descriptor a = Member("a");
  AskGranulesOfABusyDevice(a);
  a.Reset();
  Turn();
  device_->GoOn();
  Turn();
  EXPECT_EQ(pool_->slabs().free_count(), 300u) << "it mapped nothing";
}

// A floor that needs the slabs of a dead engine waits for them.
TEST_F(SocketServerTest, ViewWaitsForTheEndOfAQuarantine) {
  BeginQuarantine();
  const driver::Descriptor engine = Member("a");
  EXPECT_EQ(abi::Send(engine.get(), LargeView()), 0);
  Turn();
  EXPECT_EQ(received_.ReceiveFrom(engine.get()), EAGAIN);
  EndQuarantine();
  EXPECT_GT(Answer<abi::ViewAnswer>(engine).floor_slabs, 2u);
}

TEST_F(SocketServerTest, WaitingLeaseIsAnsweredWhenItsSlabsAreZero) {
  const driver::Descriptor fd = Member("a");
  AskWhileAllIsZeroed(fd);
  Settle();
  EXPECT_EQ(received_.ReceiveFrom(fd.get()), EAGAIN);
  backing_->set_zeroing_completes(true);
  Settle();
  EXPECT_EQ(Answer<abi::LeaseGrant>(fd).slab_count, 7u);
}

TEST_F(SocketServerTest, LeaseOfAConnectionThatLeftWhileWaitingIsNotLost) {
  driver::Descriptor fd = Member("a");
  AskWhileAllIsZeroed(fd);
  fd.Reset();
  Turn();
  backing_->set_zeroing_completes(true);
  Settle();
  Settle();
  EXPECT_EQ(pool_->slabs().free_count(), 300u);
}

TEST_F(SocketServerTest, LeaseThatWasNeverFetchedReturnsWithItsConnection) {
  driver::Descriptor fd = Member("a");
  Ask<abi::LeaseGrant>(fd, LeaseOf(5));
  fd.Reset();
  Turn();
  Settle();
  EXPECT_EQ(pool_->slabs().free_count(), 300u);
}

TEST_F(SocketServerTest, EndOfAConnectionTakesNothingFromALivingProcess) {
  driver::Descriptor fd = Member("a");
  auto request = MakeMessage<abi::GranuleRequest>(3);
  request.lease = Ask<abi::LeaseGrant>(fd, LeaseOf(5)).lease;
  request.max_count = 1;
  Ask<abi::GranuleBatch>(fd, request);
  fd.Reset();
  Turn();
  EXPECT_EQ(pool_->slabs().free_count(), 295u);
}

TEST_F(SocketServerTest, ProcessThatConnectsItsMoverAgainIsHeardThereAlone) {
  const driver::Descriptor member = Member("a");
  auto hello = HelloFrom("a");
  hello.role = abi::Role::kMover;
  const driver::Descriptor former = Connect();
  Ask<abi::Welcome>(former, hello);
  const driver::Descriptor mover = Connect();
  Ask<abi::Welcome>(mover, hello);
  pollfd ends[] = {{former.get(), 0, 0}, {mover.get(), 0, 0}};
  EXPECT_EQ(poll(ends, 2, 0), 1);
  EXPECT_NE(ends[0].revents & POLLHUP, 0);
  EXPECT_EQ(ends[1].revents, 0);
}

// Ranks of an engine on several GPUs that this daemon moves.
class FollowerTest : public SocketServerTest {
 protected:
  FollowerTest() {
    auto hello = HelloFrom("a");
    hello.role = abi::Role::kFollower;
    Ask<abi::Welcome>(rank_, hello);
  }
  // Sends a report, and returns the order that follows, if any.
  absl::optional<abi::MoveOrder> Report(abi::Place place, abi::Need need,
                                        uint32_t order = 0) {
    auto report = MakeMessage<abi::MoveReport>(++sequence_);
    report.seat = abi::Seat::kRank;
    report.place = place;
    report.need = need;
    report.order = order;
    report.can_rest = 1;
    (place == abi::Place::kHost ? report.out_bytes : report.moving_bytes) = 10;
    EXPECT_EQ(abi::Send(rank_.get(), report), 0);
    Turn();
    pollfd readable = {rank_.get(), POLLIN, 0};
    if (poll(&readable, 1, 0) != 1) return absl::nullopt;
    return Answer<abi::MoveOrder>(rank_);
  }
  // Expects that the engine stays away because others need another GPU's room:
  // for kStayOutNs no call brings it back.
  void ExpectStaysOut() {
    using abi::Need;
    using abi::Place;
    EXPECT_FALSE(Report(Place::kHost, Need::kReturn));
    clock_.AdvanceNs(MoveBook::kStayOutNs);
    const auto back = Report(Place::kHost, Need::kReturn);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->to, Place::kGpu);
  }

  const driver::Descriptor member_ = Member("a");
  const driver::Descriptor rank_ = Connect();
  uint32_t sequence_ = 1;
};

TEST_F(FollowerTest, EngineThatLeavesForAnotherGpusRoomStaysOut) {
  EXPECT_FALSE(Report(abi::Place::kGpu, abi::Need::kNone));
  const auto leave = Report(abi::Place::kGpu, abi::Need::kRoom);
  ASSERT_TRUE(leave);
  EXPECT_EQ(leave->to, abi::Place::kHost);
  EXPECT_FALSE(Report(abi::Place::kHost, abi::Need::kNone, leave->order));
  ExpectStaysOut();
}

TEST_F(FollowerTest, EngineThatIsAwayWhenAnotherGpuNeedsItsRoomStaysOut) {
  EXPECT_FALSE(Report(abi::Place::kHost, abi::Need::kNone));
  EXPECT_FALSE(Report(abi::Place::kHost, abi::Need::kRoom));
  ExpectStaysOut();
}

TEST_F(SocketServerTest, ForkedChildCannotSpeakForItsParent) {
  driver::Descriptor fd = Member("a");
  auto back = MakeMessage<abi::ReturnRequest>(4);
  back.lease = Ask<abi::LeaseGrant>(fd, LeaseOf(5)).lease;
  const uint64_t before = dropped();
  const pid_t child = fork();
  if (child == 0) _exit(abi::Send(fd.get(), back));
  int status;
  waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  Turn();
  EXPECT_EQ(dropped(), before + 1);
  EXPECT_EQ(pool_->slabs().free_count(), 295u);
  Ask<abi::ReturnDone>(fd, back);  // the parent still can
}

TEST_F(SocketServerTest,
       KilledMembersSlabsAreQuarantinedThoughAForkKeepsItsSocket) {
  driver::Descriptor hold;
  const pid_t member = ForkMember(LeaseOf(5), &hold);
  Turn();
  EXPECT_EQ(pool_->slabs().free_count(), 295u);
  backing_->set_device_pids(std::vector<pid_t>{member});
  Kill(member);
  Turn();
  EXPECT_TRUE(pool_->state().quarantining());
  EXPECT_EQ(pool_->slabs().free_count(), 295u);
}

TEST_F(SocketServerTest, ViewThatWaitsEndsWithItsProcess) {
  BeginQuarantine();
  driver::Descriptor hold;
  const pid_t member = ForkMember(LargeView(), &hold);
  Turn();
  ASSERT_EQ(pool_->state().Engines().size(), 2u);
  Kill(member);
  Turn();
  EXPECT_THAT(pool_->state().Engines(), ElementsAre(slab::EngineId{1}));
  EndQuarantine();
  EXPECT_THAT(pool_->state().Engines(), IsEmpty());
}

TEST_F(SocketServerTest,
       ScoreboardCannotBeMappedWritableOnceItsMemberHasSpoken) {
  driver::Descriptor fd = Connect();
  Ask<abi::Welcome>(fd, HelloFrom("a"));
  const driver::Descriptor scoreboard(received_.TakeDescriptor(1));
  const auto map = [&] {
    return mmap(nullptr, abi::kScoreboardBytes, PROT_READ | PROT_WRITE,
                MAP_SHARED, scoreboard.get(), 0);
  };
  void* mine = map();
  ASSERT_NE(mine, MAP_FAILED);
  Ask<abi::LeaseGrant>(fd, LeaseOf(1));
  EXPECT_EQ(map(), MAP_FAILED);
  EXPECT_EQ(ftruncate(scoreboard.get(), 0), -1);
  static_cast<abi::ScoreboardHeader*>(mine)->decisions.store(1);  // still works
  munmap(mine, abi::kScoreboardBytes);
}

TEST_F(SocketServerTest, ViewIsRegisteredMappedActivatedAndServed) {
  const driver::Descriptor engine = Member("a");
  const auto answer = Ask<abi::ViewAnswer>(engine, ViewOf(4));
  EXPECT_EQ(answer.plane_bytes, 4096u);
  EXPECT_EQ(answer.granules_per_plane, 1u);
  EXPECT_EQ(answer.slab_count, 300u);
  EXPECT_EQ(answer.floor_slabs, 1u);
  EXPECT_EQ(received_.descriptor_count(), 1u) << "the view scoreboard";
  auto granules = MakeMessage<abi::PoolGranuleRequest>(4);
  granules.first = 1190;
  granules.max_count = 253;
  const auto batch = Ask<abi::GranuleBatch>(engine, granules);
  EXPECT_EQ(batch.count, 10u) << "the pool ends there";
  EXPECT_EQ(received_.descriptor_count(), 10u);
  Activate(engine, 300, 2);
  EXPECT_EQ(InView(), 2u);
  auto want = MakeMessage<abi::WantNotice>(0);
  want.wanted = 7;
  EXPECT_EQ(abi::Send(engine.get(), want), 0);
  Turn();
  Settle();
  EXPECT_EQ(InView(), 7u);
  auto back = MakeMessage<abi::ReturnNotice>(0);
  back.count = 2;
  back.entries[0] = {299, pool_->slabs().word(slab::SlabId{299}).lease};
  back.entries[1] = {298, 4711};
  EXPECT_EQ(abi::Send(engine.get(), back), 0);
  Turn();
  EXPECT_EQ(table_->counters().slabs_returned.load(), 1u);
  EXPECT_EQ(dropped(), 1u) << "the entry with a wrong lease";
  Ask<abi::CloseViewDone>(engine, MakeMessage<abi::CloseViewRequest>(6));
  EXPECT_EQ(InView(), 0u);
}

TEST_F(SocketServerTest, AViewIsRecordedWithTheShapeOfItsRequests) {
  const driver::Descriptor engine = Member("view");
  abi::ViewRequest view = ViewOf(4);
  view.shape = {{{1, 16, 0}, {6, 16, 1024}}, 3, 2048, 2, 0};
  Ask<abi::ViewAnswer>(engine, view);
  const auto reported = pool_->state().Record(slab::EngineId{1}).view.shape;
  EXPECT_EQ(memcmp(&reported, &view.shape, sizeof(reported)), 0);
}

TEST_F(SocketServerTest, AViewWhoseBlocksHoldNoTokensIsDropped) {
  const driver::Descriptor engine = Member("view");
  abi::ViewRequest view = ViewOf(4);
  view.shape.groups[0].count = 1;
  EXPECT_EQ(abi::Send(engine.get(), view), 0);
  Turn();
  EXPECT_EQ(dropped(), 1u);
  EXPECT_FALSE(pool_->state().HasView(slab::EngineId{1}));
}

TEST_F(SocketServerTest, AnEngineOnSeveralGpusIsLeasedWhatItWishesFor) {
  const driver::Descriptor rank = Member("a");
  abi::ViewRequest view = ViewOf(4);
  view.flags = abi::kViewOfGroup;
  Ask<abi::ViewAnswer>(rank, view);
  const driver::Descriptor runs = Member("a");
  const auto run = MakeMessage<abi::RunPoolRequest>(7);
  EXPECT_THAT(Ask<abi::Refused>(runs, run).text, HasSubstr("is not active"));
  Activate(rank, 200, 2);
  EXPECT_EQ(InView(), 0u) << "it has wished for nothing";
  const auto answer = Ask<abi::RunPoolAnswer>(runs, run);
  EXPECT_EQ(answer.slabs, 200u);
  EXPECT_EQ(answer.slab_count, 300u);
  ASSERT_EQ(received_.descriptor_count(), 1u);
  const driver::Descriptor scoreboard(received_.TakeDescriptor(0));
  const auto wish = [&](uint32_t v) {
    const uint32_t yes = 1;
    pwrite(scoreboard.get(), &yes, sizeof(yes),
           static_cast<off_t>(sizeof(abi::ViewScoreboardHeader) +
                              (301 + v) * sizeof(yes)));
  };
  wish(18);
  wish(250);  // beyond its tensors
  Settle();
  EXPECT_EQ(pool_->slabs().word(slab::SlabId{17}).engine, 1u);
  EXPECT_EQ(InView(), 1u);
  EXPECT_EQ(pool_->state().Record(slab::EngineId{1}).view.offer, 200u);
}

TEST_F(SocketServerTest, SuspendedViewIsRegisteredAgainAndHasTheSameSlot) {
  const driver::Descriptor engine = Member("view");
  const auto answer = Ask<abi::ViewAnswer>(engine, ViewOf(4));
  Activate(engine, 300, 7);
  EXPECT_EQ(InView(), 7u);
  auto suspend = MakeMessage<abi::CloseViewRequest>(6);
  suspend.suspended = 1;
  Ask<abi::CloseViewDone>(engine, suspend);
  EXPECT_EQ(InView(), 0u);
  EXPECT_TRUE(pool_->state().HasView(slab::EngineId{1}));
  const auto again = Ask<abi::ViewAnswer>(engine, ViewOf(4));
  EXPECT_EQ(again.engine_slot, answer.engine_slot);
  Activate(engine, 300, 7);
  EXPECT_EQ(InView(), 7u);
}

TEST_F(SocketServerTest, WholeRequestIsServedFromWhatAViewGivesBackOrRefused) {
  const driver::Descriptor view = Viewer(300);
  const driver::Descriptor whole = Member("whole");
  for (const bool comes_back : {true, false}) {
    EXPECT_EQ(abi::Send(whole.get(), LeaseOf(2)), 0);
    Turn();
    Settle();
    EXPECT_EQ(pool_->slabs().HeldBy(slab::EngineId{1}).returning, 2u);
    EXPECT_EQ(received_.ReceiveFrom(whole.get()), EAGAIN) << "it waits";
    if (comes_back) {
      auto back = MakeMessage<abi::ReturnNotice>(0);
      for (const auto& [slab, lease] :
           pool_->slabs().InView(slab::EngineId{1})) {
        if (pool_->slabs().word(slab).state != abi::SlabState::kReturning) {
          continue;
        }
        back.entries[back.count++] = {Number(slab), Number(lease)};
      }
      EXPECT_EQ(abi::Send(view.get(), back), 0);
      Turn();
      Settle();
      EXPECT_EQ(Answer<abi::LeaseGrant>(whole).slab_count, 2u);
    } else {
      clock_.AdvanceNs(slab::PoolState::kLeaseWaitNs);
      Settle();
      EXPECT_EQ(Answer<abi::Refused>(whole).code,
                abi::RefusalCode::kPoolExhausted);
      EXPECT_EQ(pool_->slabs().promised_count(), 0u);
    }
  }
}

TEST_F(SocketServerTest, RequestWhoseConnectionEndsLeavesTheLine) {
  const driver::Descriptor view = Viewer(300);
  {
    const driver::Descriptor whole = Member("whole");
    abi::Send(whole.get(), LeaseOf(2));
    Turn();
    EXPECT_EQ(pool_->slabs().promised_count(), 2u);
  }
  Turn();
  EXPECT_EQ(pool_->slabs().promised_count(), 0u);
}

TEST_F(SocketServerTest, ViewOfAFormatThatDoesNotFitIsRefusedWithTheFix) {
  const driver::Descriptor engine = Member("a");
  const auto refused = Ask<abi::Refused>(engine, ViewOf(5));
  EXPECT_EQ(refused.code, abi::RefusalCode::kFormat);
  EXPECT_THAT(refused.text, HasSubstr("slabs of"));
}

TEST_F(SocketServerTest, GranulesWithoutAViewAreRefused) {
  const driver::Descriptor engine = Member("a");
  auto granules = MakeMessage<abi::PoolGranuleRequest>(4);
  granules.max_count = 1;
  EXPECT_EQ(Ask<abi::Refused>(engine, granules).code,
            abi::RefusalCode::kUnknownLease);
}

TEST_F(SocketServerTest,
       ReturnNoticeOfMoreThanTheMessageHoldsEndsTheConnection) {
  const driver::Descriptor engine = Member("a");
  auto back = MakeMessage<abi::ReturnNotice>(0);
  back.count = abi::kReturnNoticeCapacity + 1;
  abi::Send(engine.get(), back);
  Turn();
  EXPECT_EQ(received_.ReceiveFrom(engine.get()), EPIPE);
  EXPECT_EQ(dropped(), 1u);
}

}  // namespace
}  // namespace fineserve::server
