// Tests the client against Debian's etcd.

#include "daemon/node/etcd/etcd_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

#include "tools/lab/process/child_process.h"
#include "tools/lab/process/etcd_member.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::etcd {
namespace {

TEST(GatewayTest, RangeCoversExactlyThePrefix) {
  // "a/" to "a0": base64 of each.
  EXPECT_EQ(RangeBody("a/"), R"({"key":"YS8=","range_end":"YTA="})");
  // No byte is greater than 0xff, so the byte before it is raised.
  EXPECT_EQ(RangeBody("a\xff"), R"({"key":"Yf8=","range_end":"Yg=="})");
}

TEST(GatewayTest, TxnNamesItsConditionsAndItsWrites) {
  Txn txn;
  txn.when = {{"k", 7}};
  txn.puts = {{"k", "v", 3}};
  txn.deletes = {"d"};
  EXPECT_EQ(
      TxnBody(txn),
      R"({"compare":[{"create_revision":"7","key":"aw==","result":"EQUAL",)"
      R"("target":"CREATE"}],"success":[{"request_put":{"key":"aw==",)"
      R"("lease":"3","value":"dg=="}},{"request_delete_range":{"key":"ZA=="}}]})");
}

TEST(GatewayTest, ReadsKeysWith64BitNumbersInStrings) {
  const auto answer = ParseRange(
      R"({"header":{"cluster_id":"18446744073709551615","revision":"9"},)"
      R"("kvs":[{"key":"aw==","create_revision":"5","mod_revision":"6",)"
      R"("value":"dg==","lease":"7587862094"}],"count":"1"})");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->header.cluster, 18446744073709551615u);
  EXPECT_EQ(answer->header.revision, 9);
  ASSERT_EQ(answer->entries.size(), 1u);
  EXPECT_EQ(answer->entries[0].key, "k");
  EXPECT_EQ(answer->entries[0].value, "v");
  EXPECT_EQ(answer->entries[0].create_revision, 5);
  EXPECT_EQ(answer->entries[0].lease, 7587862094);
}

// The gateway leaves out what is zero or false.
TEST(GatewayTest, AbsenceMeansFalseAndZero) {
  const auto failed = ParseTxn(R"({"header":{"cluster_id":"1"}})");
  ASSERT_TRUE(failed.ok());
  EXPECT_FALSE(failed->succeeded);
  const auto lapsed =
      ParseKeepAlive(R"({"result":{"header":{"cluster_id":"1"},"ID":"4"}})");
  ASSERT_TRUE(lapsed.ok());
  EXPECT_EQ(lapsed->ttl_s, 0);
}

TEST(GatewayTest, GarbageIsRefused) {
  for (const char* body :
       {"", "[]", "{}", "null", R"({"header":7})", R"({"header":{}})",
        R"({"header":{"cluster_id":"x"}})",
        R"({"header":{"cluster_id":"1"},"kvs":{}})",
        R"({"header":{"cluster_id":"1"},"kvs":[7]})",
        R"({"header":{"cluster_id":"1"},"kvs":[{"key":"?"}]})",
        R"({"header":{"cluster_id":"1"},"kvs":[{"key":"aw=="}]})"}) {
    EXPECT_FALSE(ParseRange(body).ok()) << body;
  }
}

TEST(GatewayTest, ErrorsKeepEtcdsCodeAndWords) {
  const absl::Status full = ParseError(
      500, R"({"error":"x","message":"etcdserver: no space","code":8})");
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_EQ(full.message(), "etcdserver: no space");
  EXPECT_TRUE(absl::IsUnavailable(ParseError(502, "<html>")));
  EXPECT_TRUE(
      absl::IsUnavailable(ParseError(500, R"({"message":"m","code":99})")));
}

namespace asio = boost::asio;
using std::chrono::milliseconds;

// A cluster of `count` members on loopback.
class Cluster {
 public:
  explicit Cluster(size_t count) : folder_("/dev/shm") {
    for (size_t i = 0; i < count; ++i) {
      members_.push_back(
          {"127.0.0.1", process::FreePort(), process::FreePort()});
    }
    for (size_t i = 0; i < count; ++i) {
      processes_.emplace_back(
          process::Command{process::EtcdCommand(members_, i, folder_.path())});
    }
  }

  ClientSettings Settings() const {
    ClientSettings settings;
    for (const auto& m : members_) {
      settings.endpoints.push_back({m.host, m.client_port});
    }
    return settings;
  }
  void Signal(size_t i, int signal) { processes_[i].Signal(signal); }

 private:
  const process::TemporaryFolder folder_;
  std::vector<process::EtcdAddress> members_;
  std::vector<process::ChildProcess> processes_;
};

class EtcdClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!process::HasEtcd()) GTEST_SKIP() << process::kNoEtcd;
  }

  // Runs one call to its end.
  template <typename T>
  T Run(asio::awaitable<T> call) {
    std::optional<T> result;
    asio::co_spawn(
        io_,
        [&]() -> asio::awaitable<void> {
          result.emplace(co_await std::move(call));
        },
        asio::detached);
    io_.restart();
    io_.run();
    return *std::move(result);
  }
  void AwaitQuorum(EtcdClient* client) {
    ASSERT_TRUE(
        process::Eventually([&] { return Run(client->Range("x")).ok(); }));
  }

  asio::io_context io_;
};

TEST_F(EtcdClientTest, TheFirstOfTwoMakesTheKeyAndItsRevisionIsTheFence) {
  Cluster cluster(1);
  EtcdClient client(&io_, cluster.Settings());
  AwaitQuorum(&client);
  ASSERT_TRUE(Run(client.Grant(11, 5)).ok());
  Txn stand;
  stand.when = {{"election", 0}};
  stand.puts = {{"election", "a", 11}};
  EXPECT_TRUE(Run(client.Commit(stand))->succeeded);
  EXPECT_FALSE(Run(client.Commit(stand))->succeeded);
  const auto seen = Run(client.Range("election"));
  ASSERT_EQ(seen->entries.size(), 1u);
  EXPECT_EQ(seen->entries[0].lease, 11);
  const int64_t term = seen->entries[0].create_revision;

  Txn write;
  write.when = {{"election", term}};
  write.puts = {{"plan", "one"}};
  EXPECT_TRUE(Run(client.Commit(write))->succeeded);
  // When the lease ends, the term ends: the same write is refused from then on.
  EXPECT_TRUE(Run(client.Revoke(11)).ok());
  write.puts = {{"plan", "two"}};
  EXPECT_FALSE(Run(client.Commit(write))->succeeded);
  EXPECT_EQ(Run(client.Range("plan"))->entries[0].value, "one");
  EXPECT_TRUE(absl::IsNotFound(Run(client.KeepAlive(11)).status()));
}

TEST_F(EtcdClientTest, ALeaseIsKeptAliveAndGrantedTwiceWithoutHarm) {
  Cluster cluster(1);
  EtcdClient client(&io_, cluster.Settings());
  AwaitQuorum(&client);
  EXPECT_EQ(Run(client.Grant(12, 7)).value(), 7);
  EXPECT_EQ(Run(client.Grant(12, 7)).value(), 7);
  EXPECT_EQ(Run(client.KeepAlive(12)).value(), 7);
}

TEST_F(EtcdClientTest, OneOfThreeMembersMayGoTwoMayNot) {
  Cluster cluster(3);
  EtcdClient client(&io_, cluster.Settings());
  AwaitQuorum(&client);
  Txn write;
  write.puts = {{"k", std::string("\0\xff binary", 9)}};
  ASSERT_TRUE(Run(client.Commit(write))->succeeded);
  cluster.Signal(0, SIGKILL);
  ASSERT_TRUE(
      process::Eventually([&] { return Run(client.Commit(write)).ok(); }));
  EXPECT_EQ(Run(client.Range("k"))->entries[0].value, write.puts[0].value);
  cluster.Signal(1, SIGSTOP);
  // An earlier request that was under way may still be executed.
  absl::Status refused;
  ASSERT_TRUE(process::Eventually([&] {
    refused = Run(client.Commit(write)).status();
    return !refused.ok();
  }));
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  cluster.Signal(1, SIGCONT);
  EXPECT_TRUE(
      process::Eventually([&] { return Run(client.Commit(write)).ok(); }));
}

TEST_F(EtcdClientTest, AnotherClustersAnswersAreRefusedAndCounted) {
  Cluster ours(1);
  Cluster theirs(1);
  EtcdClient stranger(&io_, theirs.Settings());
  AwaitQuorum(&stranger);
  EtcdClient client(&io_, ours.Settings());
  AwaitQuorum(&client);
  stranger.SetCluster(client.cluster());
  const absl::Status s = Run(stranger.Range("x")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(s)) << s;
  EXPECT_EQ(stranger.strangers(), 1u);
}

TEST_F(EtcdClientTest, AMemberOfAnotherClusterHoldsUpNoCall) {
  Cluster ours(1);
  Cluster theirs(1);
  EtcdClient known(&io_, ours.Settings());
  AwaitQuorum(&known);
  EtcdClient stranger(&io_, theirs.Settings());
  AwaitQuorum(&stranger);
  ClientSettings both = theirs.Settings();
  both.endpoints.push_back(ours.Settings().endpoints[0]);
  EtcdClient client(&io_, both);
  client.SetCluster(known.cluster());
  EXPECT_FALSE(Run(client.Range("x")).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Run(client.Range("x")).ok());
  EXPECT_EQ(client.strangers(), 1u);
}

// A member that was away is asked again, even if the others answer.
TEST_F(EtcdClientTest, TheFirstMemberIsAskedAgain) {
  Cluster ours(1);
  Cluster theirs(1);
  EtcdClient stranger(&io_, theirs.Settings());
  AwaitQuorum(&stranger);
  theirs.Signal(0, SIGSTOP);
  ClientSettings both = theirs.Settings();
  both.endpoints.push_back(ours.Settings().endpoints[0]);
  both.return_to_first = milliseconds(100);
  EtcdClient client(&io_, both);
  AwaitQuorum(&client);
  EXPECT_NE(client.cluster(), stranger.cluster());
  theirs.Signal(0, SIGCONT);
  EXPECT_TRUE(process::Eventually([&] {
    (void)Run(client.Range("x"));
    return client.strangers() > 0;
  }));
}

TEST_F(EtcdClientTest, NoMemberAnswers) {
  ClientSettings settings;
  settings.endpoints = {{"127.0.0.1", process::FreePort()}};
  EtcdClient client(&io_, settings);
  EXPECT_TRUE(absl::IsUnavailable(Run(client.Range("x")).status()));
}

}  // namespace

}  // namespace fineserve::etcd
