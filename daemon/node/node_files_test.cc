// Tests what a node writes to Debian's etcd and to the runtime folder.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "daemon/base/whole_file.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/fleet/machines/lead_grant.h"
#include "daemon/node/etcd/etcd_client.h"
#include "daemon/node/node.h"
#include "daemon/scheduling/lead/standing_plan.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/etcd_member.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::node {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr char kPlan[] = "/fineserve/fleet/plan";

// Machine "here", whose only daemon answers and does nothing else.
class NodeFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!process::HasEtcd()) GTEST_SKIP() << process::kNoEtcd;
    unsetenv("FINESERVE_MACHINE");
    etcd_.emplace(
        process::Command{process::EtcdCommand({at_}, 0, disk_.path())});
    auto daemon = wire::ServerSocket::Bind(
        finding::AdmissionPath(folder_.path() + "/GPU-0.sock"));
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_.emplace(*std::move(daemon));
    Node::Setup setup;
    setup.folder = folder_.path();
    setup.fleet.cluster.etcd = {{at_.host, at_.client_port}};
    setup.fleet.cluster.machines = {{"here", "127.0.0.1", {"GPU-0"}},
                                    {"there", "192.0.2.1", {"GPU-1"}}};
    setup.machine = setup.fleet.cluster.machines[0];
    node_.emplace(&io_, std::move(setup), &clock_);
    node_->Start();
    ASSERT_TRUE(Becomes([&] { return Grant().term != 0; })) << "it leads";
  }

  void TearDown() override {
    if (!node_) return;
    node_->Stop();
    EXPECT_TRUE(Becomes([&] { return io_.stopped(); }));
  }

  // Lets the node and its daemon go on for a moment.
  void Turn() {
    io_.run_for(milliseconds(10));
    while (const auto asked = daemon_->Receive()) {
      daemon_->Send(asked->peer, wire::Encode(1, 0, wire::ReportT()));
    }
  }
  template <typename Condition>
  bool Becomes(Condition condition) {
    return process::Eventually([&] {
      Turn();
      return condition();
    });
  }
  cluster::LeadGrant Grant() const {
    const auto grant = cluster::ReadGrant(folder_.path(), clock_.NowNs());
    return grant.ok() ? *grant : cluster::LeadGrant();
  }
  // As the leader writes it.
  void WritePlan(uint64_t number) {
    lead::StandingPlan plan;
    plan.term = Grant().term;
    plan.number = number;
    ASSERT_TRUE(
        base::ReplaceFile(folder_.path() + "/plan.json", lead::PlanText(plan))
            .ok());
  }
  // Returns etcd's answer to a call that the test itself makes.
  template <typename T>
  T Answer(asio::awaitable<T> call) {
    std::optional<T> answer;
    asio::co_spawn(
        io_,
        [&]() -> asio::awaitable<void> {
          answer.emplace(co_await std::move(call));
        },
        asio::detached);
    EXPECT_TRUE(Becomes([&] { return answer.has_value(); }));
    return *std::move(answer);
  }
  bool EtcdHasPlan() {
    const auto answer = Answer(client_.Range(kPlan));
    return answer.ok() && answer->entries.size() == 1;
  }

  const process::TemporaryFolder folder_;
  const process::TemporaryFolder disk_{"/dev/shm"};
  const process::EtcdAddress at_{"127.0.0.1", process::FreePort(),
                                 process::FreePort()};
  RealClock clock_;
  std::optional<process::ChildProcess> etcd_;
  std::optional<wire::ServerSocket> daemon_;
  asio::io_context io_{1};
  etcd::EtcdClient client_{&io_, {{{at_.host, at_.client_port}}}};
  std::optional<Node> node_;
};

TEST_F(NodeFilesTest, APlanThatEtcdLosesIsCarriedAgain) {
  WritePlan(7);
  ASSERT_TRUE(Becomes([&] { return Grant().carried == 7; }));
  etcd::Txn txn;
  txn.deletes = {kPlan};
  ASSERT_TRUE(Answer(client_.Commit(txn)).ok());
  EXPECT_TRUE(Becomes([&] { return EtcdHasPlan(); }));
  EXPECT_TRUE(Becomes([&] { return Grant().carried == 7; }));
}

TEST_F(NodeFilesTest, NoGrantIsLeftByANodeThatEndsWhileItCarriesAPlan) {
  etcd_->Signal(SIGSTOP);
  WritePlan(7);
  for (int i = 0; i < 30; ++i) Turn();
  ASSERT_NE(Grant().term, 0u);
  node_->Stop();
  EXPECT_EQ(Grant().term, 0u);
  etcd_->Signal(SIGCONT);
  EXPECT_TRUE(Becomes([&] { return io_.stopped(); }));
  EXPECT_EQ(Grant().term, 0u);
}

// The machine's daemon has stopped answering. Another machine may lead as soon
// as the key of the election is gone.
TEST_F(NodeFilesTest, GrantIsGoneBeforeTheLeadIsGivenBack) {
  std::atomic<bool> given_back{false};
  uint64_t term_then = 0;
  std::thread other([&] {
    asio::io_context io;
    etcd::EtcdClient etcd{&io, {{{at_.host, at_.client_port}}}};
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          while (!given_back) {
            const auto key = co_await etcd.Range("/fineserve/fleet/election");
            given_back = key.ok() && key->entries.empty();
          }
          term_then = Grant().term;
        },
        asio::detached);
    io.run();
  });
  EXPECT_TRUE(process::Eventually([&] {
    io_.run_for(milliseconds(10));
    return given_back.load();
  }));
  given_back = true;
  other.join();
  EXPECT_EQ(term_then, 0u);
}

}  // namespace
}  // namespace fineserve::node
