#include "daemon/proxy/admission/path_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/wire/message.h"
#include "daemon/wire/socket.h"
#include "kernels/driver/descriptor.h"
#include "tests/process/temporary_folder.h"

namespace fineserve::proxy {
namespace {

using ::testing::ElementsAre;
using Clock = std::chrono::steady_clock;

// A busy machine is slow, not wrong.
constexpr std::chrono::minutes kPatience(1);

// What a ROUTER says first.
const std::string kRoutersOpening =
    std::string("\xFF\0\0\0\0\0\0\0\1\x7F\3\1NULL", 16) +
    std::string(48, '\0') +
    std::string("\4\x1C\5READY\x0BSocket-Type\0\0\0\6ROUTER", 30);

// The other end is libzmq's ROUTER, or bytes written by hand.
class PathLinkTest : public ::testing::Test {
 protected:
  void Link() {
    auto link = PathLink::Connect(&io_, path_,
                                  {[this] { ++connected_; },
                                   [this](absl::string_view m) {
                                     heard_.emplace_back(m);
                                     if (hears_) hears_();
                                   }});
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
  }
  void RunFor(std::chrono::milliseconds time) {
    io_.restart();
    io_.run_for(time);
  }
  bool RunUntil(const std::function<bool()>& holds) {
    const auto end = Clock::now() + kPatience;
    while (!holds()) {
      if (Clock::now() > end) return false;
      RunFor(std::chrono::milliseconds(5));
    }
    return true;
  }
  // The next message that reaches the daemon.
  absl::optional<wire::ServerSocket::Incoming> Next(
      wire::ServerSocket* server) {
    absl::optional<wire::ServerSocket::Incoming> incoming;
    RunUntil([&] { return (incoming = server->Receive()).has_value(); });
    return incoming;
  }
  // Somebody who listens at the path, and says nothing by itself.
  driver::Descriptor Listen() const {
    unlink(path_.c_str());
    driver::Descriptor fd(
        socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(
        bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    EXPECT_EQ(listen(fd.get(), 8), 0);
    return fd;
  }
  // Takes the link's next connection, and sends it `bytes`.
  driver::Descriptor Accept(const driver::Descriptor& listener,
                            const std::string& bytes) {
    driver::Descriptor fd;
    RunUntil([&] {
      fd.Reset(accept(listener.get(), nullptr, nullptr));
      return fd.valid();
    });
    EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
    return fd;
  }

  // What is there.
  static std::string ReadAll(const driver::Descriptor& peer) {
    std::string all;
    char some[1 << 16];
    for (;;) {
      const ssize_t n = recv(peer.get(), some, sizeof(some), MSG_DONTWAIT);
      if (n <= 0) return all;
      all.append(some, static_cast<size_t>(n));
    }
  }

  const process::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/GPU-1.admission";
  boost::asio::io_context io_{1};
  int connected_ = 0;
  std::vector<std::string> heard_;
  std::function<void()> hears_;
  std::unique_ptr<PathLink> link_;
};

TEST_F(PathLinkTest, MessagesReachARouterOfLibzmqAndComeBack) {
  auto server = *wire::ServerSocket::Bind(path_);
  Link();
  EXPECT_FALSE(link_->Send("lost", Haste::kThisTurn))
      << "nothing is kept for a connection";
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  const std::string longest(wire::kMessageBytes, 'x');
  for (const std::string& message : {std::string("ask"), longest}) {
    EXPECT_TRUE(link_->Send(message, Haste::kThisTurn));
    const auto asked = Next(&server);
    ASSERT_TRUE(asked.has_value());
    EXPECT_TRUE(asked->bytes == message);
    EXPECT_TRUE(server.Send(asked->peer, "answer to " + message.substr(0, 3)));
  }
  ASSERT_TRUE(RunUntil([&] { return heard_.size() == 2; }));
  EXPECT_THAT(heard_, ElementsAre("answer to ask", "answer to xxx"));
}

// Frames of short messages.
std::string Frames(const std::vector<std::string>& messages) {
  std::string frames;
  for (const std::string& m : messages) {
    frames += std::string({0, static_cast<char>(m.size())}) + m;
  }
  return frames;
}

TEST_F(PathLinkTest, MessagesAreWrittenAsSoonAsIsAsked) {
  const driver::Descriptor listener = Listen();
  Link();
  const driver::Descriptor peer = Accept(listener, kRoutersOpening);
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  RunFor(std::chrono::milliseconds(10));
  ReadAll(peer);  // the link's own opening
  EXPECT_TRUE(link_->Send("a", Haste::kWithNext));
  EXPECT_EQ(ReadAll(peer), "");
  EXPECT_TRUE(link_->Send("b", Haste::kNow));
  EXPECT_EQ(ReadAll(peer), Frames({"a", "b"}));
  EXPECT_TRUE(link_->Send("c", Haste::kThisTurn));
  EXPECT_TRUE(link_->Send("d", Haste::kNow));
  EXPECT_EQ(ReadAll(peer), "") << "the turn's write is set already";
  RunFor(std::chrono::milliseconds(10));
  EXPECT_EQ(ReadAll(peer), Frames({"c", "d"}));
}

// A message that is sent by who is told of another, while the other side closes
// the connection.
TEST_F(PathLinkTest, WhoHearsAMessageMaySendOneOverALostConnection) {
  const driver::Descriptor listener = Listen();
  hears_ = [this] { link_->Send("answer", Haste::kNow); };
  Link();
  {
    const driver::Descriptor peer =
        Accept(listener, kRoutersOpening + Frames({"1", "2", "3"}));
    shutdown(peer.get(), SHUT_RD);
  }
  ASSERT_TRUE(RunUntil([&] { return heard_.size() == 3; }));
  const driver::Descriptor next = Accept(listener, kRoutersOpening);
  EXPECT_TRUE(RunUntil([&] { return connected_ == 2; }));
}

TEST_F(PathLinkTest, ManyMessagesKeepTheirOrderBothWays) {
  constexpr int kMessages = 20'000;
  auto server = *wire::ServerSocket::Bind(path_);
  Link();
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(link_->Send(absl::StrCat(i, std::string(i % 300, '.')),
                            Haste::kThisTurn));
  }
  for (int i = 0; i < kMessages; ++i) {
    const auto asked = Next(&server);
    ASSERT_TRUE(asked.has_value());
    ASSERT_EQ(asked->bytes, absl::StrCat(i, std::string(i % 300, '.')));
    ASSERT_TRUE(server.Send(asked->peer, asked->bytes));
  }
  ASSERT_TRUE(RunUntil([&] { return heard_.size() == kMessages; }));
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(heard_[i], absl::StrCat(i, std::string(i % 300, '.')));
  }
}

TEST_F(PathLinkTest, DaemonThatStartsLaterIsFoundAndSoIsTheNextOne) {
  Link();
  RunFor(std::chrono::milliseconds(50));
  EXPECT_EQ(connected_, 0);
  for (int life = 1; life <= 3; ++life) {
    auto server = *wire::ServerSocket::Bind(path_);
    ASSERT_TRUE(RunUntil([&] { return connected_ == life; }));
    ASSERT_TRUE(link_->Send("hello", Haste::kThisTurn));
    EXPECT_EQ(Next(&server)->bytes, "hello");
  }
  ASSERT_TRUE(RunUntil(
      [&] { return !link_->Send("nobody reads this", Haste::kThisTurn); }));
}

TEST_F(PathLinkTest, RouterThatAsksWhetherItLivesGetsItsAnswer) {
  void* context = zmq_ctx_new();
  void* router = zmq_socket(context, ZMQ_ROUTER);
  const int every_ms = 10, within_ms = 200, linger_ms = 0;
  zmq_setsockopt(router, ZMQ_HEARTBEAT_IVL, &every_ms, sizeof(int));
  zmq_setsockopt(router, ZMQ_HEARTBEAT_TIMEOUT, &within_ms, sizeof(int));
  zmq_setsockopt(router, ZMQ_LINGER, &linger_ms, sizeof(int));
  ASSERT_EQ(zmq_bind(router, ("ipc://" + path_).c_str()), 0);
  Link();
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  RunFor(std::chrono::milliseconds(1000));
  EXPECT_EQ(connected_, 1) << "libzmq ends a connection that does not answer";
  EXPECT_TRUE(link_->Send("still here", Haste::kThisTurn));
  zmq_close(router);
  zmq_ctx_term(context);
}

TEST_F(PathLinkTest, ConnectionToSomethingElseIsClosedAndCounted) {
  {
    const driver::Descriptor listener = Listen();
    Link();
    for (uint64_t times = 1; times <= 3; ++times) {
      const driver::Descriptor peer =
          Accept(listener, "HTTP/1.1 400 Bad Request\r\n\r\n");
      ASSERT_TRUE(RunUntil([&] { return link_->garbled() == times; }));
      EXPECT_FALSE(link_->Send("m", Haste::kThisTurn));
    }
  }
  auto server = *wire::ServerSocket::Bind(path_);
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  EXPECT_TRUE(link_->Send("m", Haste::kThisTurn));
  EXPECT_EQ(Next(&server)->bytes, "m");
}

TEST_F(PathLinkTest, DaemonThatDoesNotReadIsSentNoMore) {
  const driver::Descriptor listener = Listen();
  Link();
  const driver::Descriptor peer = Accept(listener, kRoutersOpening);
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  const std::string megabyte(1 << 20, 'm');
  int taken = 0;
  while (taken < 100 && link_->Send(megabyte, Haste::kThisTurn)) {
    ++taken;
    RunFor(std::chrono::milliseconds(1));
  }
  EXPECT_GE(taken, 16);
  EXPECT_LT(taken, 100);
  char some[1 << 16];
  ASSERT_TRUE(RunUntil([&] {
    return read(peer.get(), some, sizeof(some)) > 0 &&
           link_->Send("m", Haste::kThisTurn);
  })) << "once it reads, it is sent messages again";
}

TEST_F(PathLinkTest, FolderThatOthersMayEnterIsNotBelieved) {
  auto server = *wire::ServerSocket::Bind(path_);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0777), 0);
  EXPECT_TRUE(
      absl::IsPermissionDenied(PathLink::Connect(&io_, path_, {}).status()));
}

}  // namespace
}  // namespace fineserve::proxy
