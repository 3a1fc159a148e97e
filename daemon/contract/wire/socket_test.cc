#include "daemon/contract/wire/socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace fineserve::wire {
namespace {

using Clock = std::chrono::steady_clock;

// Time limit of a wait; a busy machine is slow, not wrong.
constexpr std::chrono::minutes kPatience(1);

class SocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/fineserve-wire-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/GPU-1.admission"; }

  // Waits for the next message as the users of sockets do, and returns it.
  template <typename Socket>
  auto Next(Socket* socket) {
    auto received = socket->Receive();
    const auto deadline = Clock::now() + kPatience;
    while (!received.has_value() && Clock::now() < deadline) {
      pollfd wait = {socket->descriptor(), POLLIN, 0};
      poll(&wait, 1, 100);
      received = socket->Receive();
    }
    return received;
  }
  // Sends once the client is connected; nothing is kept for a later connection.
  static bool SendSoon(ClientSocket* client, const std::string& bytes) {
    const auto deadline = Clock::now() + kPatience;
    while (!client->Send(bytes)) {
      if (Clock::now() > deadline) return false;
      pollfd wait = {client->descriptor(), POLLIN, 0};
      poll(&wait, 1, 10);
    }
    return true;
  }

  std::string folder_;
};

TEST_F(SocketTest, SocketIsRemovedAtTheEnd) {
  { const auto server = *ServerSocket::Bind(path()); }
  EXPECT_NE(access(path().c_str(), F_OK), 0);
}

TEST_F(SocketTest, SocketIsItsUsersOnly) {
  const mode_t usual = umask(0022);
  const auto server = *ServerSocket::Bind(path());
  umask(usual);
  struct stat st;
  ASSERT_EQ(lstat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST_F(SocketTest, AnswerReachesThePeerThatAsked) {
  auto server = *ServerSocket::Bind(path());
  auto one = *ClientSocket::Connect(path());
  auto two = *ClientSocket::Connect(path());
  ASSERT_TRUE(SendSoon(&one, "from one"));
  const auto first = Next(&server);
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(SendSoon(&two, "from two"));
  const auto second = Next(&server);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(first->bytes, "from one");
  EXPECT_EQ(second->bytes, "from two");
  EXPECT_NE(first->peer, second->peer);
  EXPECT_TRUE(server.Send(second->peer, "to two"));
  EXPECT_TRUE(server.Send(first->peer, "to one"));
  EXPECT_EQ(Next(&one), absl::optional<std::string>("to one"));
  EXPECT_EQ(Next(&two), absl::optional<std::string>("to two"));
}

TEST_F(SocketTest, WithoutADaemonNothingIsKept) {
  auto client = *ClientSocket::Connect(path());
  EXPECT_FALSE(client.Send("lost"));
  auto server = *ServerSocket::Bind(path());
  ASSERT_TRUE(SendSoon(&client, "arrives"));
  EXPECT_EQ(Next(&server)->bytes, "arrives");
}

TEST_F(SocketTest, SocketInAFolderThatOthersMayEnterIsNotBelieved) {
  auto server = *ServerSocket::Bind(path());
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(ClientSocket::Connect(path()).status()));
}

TEST_F(SocketTest, ClientMeetsTheNextDaemonAtTheSamePath) {
  auto client = *ClientSocket::Connect(path());
  {
    auto server = *ServerSocket::Bind(path());
    ASSERT_TRUE(SendSoon(&client, "first"));
    EXPECT_EQ(Next(&server)->bytes, "first");
  }
  auto server = *ServerSocket::Bind(path());
  // The client may not have noticed the lost connection yet. What it sends now
  // may be lost, like any datagram to a daemon that dies.
  absl::optional<ServerSocket::Incoming> received;
  const auto deadline = Clock::now() + kPatience;
  while (!received.has_value() && Clock::now() < deadline) {
    client.Send("again");
    pollfd wait = {server.descriptor(), POLLIN, 0};
    poll(&wait, 1, 10);
    received = server.Receive();
  }
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->bytes, "again");
}

TEST_F(SocketTest, GoneAndUnknownPeersAreReportedAtOnce) {
  auto server = *ServerSocket::Bind(path());
  EXPECT_FALSE(server.Send("nobody", "x"));
  EXPECT_FALSE(server.Receive().has_value());
}

}  // namespace
}  // namespace fineserve::wire
