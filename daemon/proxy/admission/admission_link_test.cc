#include "daemon/proxy/admission/admission_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/socket.h"
#include "kernels/driver/descriptor.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::proxy {
namespace {

using ::testing::ElementsAre;
using Clock = std::chrono::steady_clock;

// Time limit of a wait; a busy machine is slow, not wrong.
constexpr std::chrono::minutes kPatience(1);

// The other end is libzmq's ROUTER, or bytes written by hand.
class PathLinkTest : public ::testing::Test {
 protected:
  void Link() {
    auto link = PathLink::Connect(
        &io_, path_,
        {[this] { ++connected_; },
         [this](absl::string_view m) { heard_.emplace_back(m); }});
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
  // Returns the next message that reaches the daemon.
  absl::optional<wire::ServerSocket::Incoming> Next(
      wire::ServerSocket* server) {
    absl::optional<wire::ServerSocket::Incoming> incoming;
    RunUntil([&] { return (incoming = server->Receive()).has_value(); });
    return incoming;
  }
  // A silent listener at the path.
  driver::Descriptor Listen() const {
    driver::Descriptor fd(
        socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(base::BindUnix(fd.get(), path_));
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

  const process::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/GPU-1.admission";
  boost::asio::io_context io_{1};
  int connected_ = 0;
  std::vector<std::string> heard_;
  std::unique_ptr<PathLink> link_;
};

TEST_F(PathLinkTest, MessagesReachARouterOfLibzmqAndComeBack) {
  auto server = *wire::ServerSocket::Bind(path_);
  Link();
  EXPECT_FALSE(link_->Send("lost")) << "nothing is kept for a connection";
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  const std::string longest(wire::kMessageBytes, 'x');
  for (const std::string& message : {std::string("ask"), longest}) {
    EXPECT_TRUE(link_->Send(message));
    const auto asked = Next(&server);
    ASSERT_TRUE(asked.has_value());
    EXPECT_TRUE(asked->bytes == message);
    EXPECT_TRUE(server.Send(asked->peer, "answer to " + message.substr(0, 3)));
  }
  ASSERT_TRUE(RunUntil([&] { return heard_.size() == 2; }));
  EXPECT_THAT(heard_, ElementsAre("answer to ask", "answer to xxx"));
}

TEST_F(PathLinkTest, ManyMessagesKeepTheirOrderBothWays) {
  constexpr int kMessages = 20'000;
  auto server = *wire::ServerSocket::Bind(path_);
  Link();
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(link_->Send(absl::StrCat(i, std::string(i % 300, '.'))));
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
    ASSERT_TRUE(link_->Send("hello"));
    EXPECT_EQ(Next(&server)->bytes, "hello");
  }
  ASSERT_TRUE(RunUntil([&] { return !link_->Send("no daemon reads this"); }));
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
  // Five times a second, libzmq ends a connection that does not answer. On a
  // busy machine an answer may be late once.
  EXPECT_TRUE(process::Eventually([&] {
    const int before = connected_;
    RunFor(std::chrono::milliseconds(1000));
    return connected_ == before;
  }));
  EXPECT_TRUE(link_->Send("still here"));
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
      EXPECT_FALSE(link_->Send("m"));
    }
  }
  auto server = *wire::ServerSocket::Bind(path_);
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  EXPECT_TRUE(link_->Send("m"));
  EXPECT_EQ(Next(&server)->bytes, "m");
}

TEST_F(PathLinkTest, DaemonThatDoesNotReadIsSentNothingFurther) {
  const driver::Descriptor listener = Listen();
  Link();
  const driver::Descriptor peer =
      Accept(listener,
             std::string("\xFF\0\0\0\0\0\0\0\1\x7F\3\1NULL", 16) +
                 std::string(48, '\0') +
                 std::string("\4\x1C\5READY\x0BSocket-Type\0\0\0\6ROUTER", 30));
  ASSERT_TRUE(RunUntil([&] { return connected_ == 1; }));
  const std::string megabyte(1 << 20, 'm');
  int taken = 0;
  while (taken < 100 && link_->Send(megabyte)) {
    ++taken;
    RunFor(std::chrono::milliseconds(1));
  }
  EXPECT_GE(taken, 16);
  EXPECT_LT(taken, 100);
  char some[1 << 16];
  ASSERT_TRUE(RunUntil([&] {
    return read(peer.get(), some, sizeof(some)) > 0 && link_->Send("m");
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
