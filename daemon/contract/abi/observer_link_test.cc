#include "daemon/contract/abi/observer_link.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/contract/abi/transport.h"

namespace fineserve::abi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A folder with one listening socket.
class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    char folder[] = "/tmp/fineserve-client-test-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = absl::StrCat(folder_, "/GPU-1.sock");
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_TRUE(base::BindUnix(listener_, path_));
    EXPECT_EQ(listen(listener_, 4), 0);
  }
  ~ClientTest() override {
    StopListening();
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  void StopListening() {
    if (listener_ >= 0) close(listener_);
    listener_ = -1;
  }

  // Connects while a thread plays a daemon that reads the Hello and answers.
  absl::StatusOr<ObserverLink> Connect(
      const std::function<void(int socket, const Hello&)>& answer) {
    std::thread daemon([&] {
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      Received received;
      EXPECT_EQ(received.ReceiveFrom(socket), 0);
      Hello hello;
      EXPECT_TRUE(received.As(&hello));
      answer(socket, hello);
      close(socket);
    });
    auto link = ConnectObserver(path_, absl::Minutes(1));
    daemon.join();
    return link;
  }

  std::string folder_;
  std::string path_;
  int listener_;
};

TEST_F(ClientTest, WelcomeBringsTheTable) {
  Hello seen;
  const auto link = Connect([&](int socket, const Hello& hello) {
    seen = hello;
    auto welcome = MakeMessage<Welcome>(hello.header.sequence);
    welcome.epoch = 5;
    const int table = memfd_create(kTableMemfdName, MFD_CLOEXEC);
    Send(socket, welcome, &table, 1);
    close(table);
  });
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(seen.role, Role::kObserver);
  EXPECT_EQ(seen.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(link->welcome.epoch, 5u);
  EXPECT_GE(fcntl(link->table.get(), F_GETFD), 0);
  EXPECT_GE(fcntl(link->socket.get(), F_GETFD), 0);
}

TEST_F(ClientTest, RefusalCarriesTheDaemonsOwnWords) {
  const auto link = Connect([](int socket, const Hello& hello) {
    auto refused = MakeMessage<Refused>(hello.header.sequence);
    refused.code = RefusalCode::kNotPermitted;
    CopyText(refused.text, "you are user 1000, I serve user 0\n");
    Send(socket, refused);
  });
  EXPECT_EQ(link.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(link.status().message()),
              HasSubstr("you are user 1000, I serve user 0?"));
}

TEST_F(ClientTest, VersionRefusalNamesBothVersions) {
  const auto link = Connect([](int socket, const Hello& hello) {
    auto refused = MakeMessage<Refused>(hello.header.sequence);
    refused.code = RefusalCode::kVersion;
    refused.daemon_abi_version = 41;
    Send(socket, refused);
  });
  EXPECT_EQ(link.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("version 41"));
  EXPECT_THAT(std::string(link.status().message()),
              HasSubstr(absl::StrCat("version ", kAbiVersion)));
}

TEST_F(ClientTest, AnswerInAnotherVersionNamesBothVersions) {
  const auto link = Connect([](int socket, const Hello& hello) {
    auto welcome = MakeMessage<Welcome>(hello.header.sequence);
    welcome.header.abi_version = 41;
    Send(socket, welcome);
  });
  EXPECT_EQ(link.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("version 41"));
}

TEST_F(ClientTest, WelcomeWithoutTableIsNonsense) {
  const auto link = Connect([](int socket, const Hello& hello) {
    Send(socket, MakeMessage<Welcome>(hello.header.sequence));
  });
  EXPECT_EQ(link.status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ClientTest, AnswerToAnotherRequestIsNonsense) {
  const auto link = Connect([](int socket, const Hello& hello) {
    Send(socket, MakeMessage<Welcome>(hello.header.sequence + 1));
  });
  EXPECT_EQ(link.status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ClientTest, BytesThatAreNoMessageAreNonsense) {
  const auto link = Connect([](int socket, const Hello&) {
    const char text[] = "HTTP/1.1 400 Bad Request";
    send(socket, text, sizeof(text), 0);
  });
  EXPECT_EQ(link.status().code(), absl::StatusCode::kDataLoss);
}

// The daemon lived a moment ago, so its socket is not that of a dead daemon.
TEST_F(ClientTest, DaemonThatHangsUpIsNotTakenForADeadOne) {
  const auto link = Connect([](int, const Hello&) {});
  EXPECT_EQ(link.status().code(), absl::StatusCode::kAborted);
}

TEST_F(ClientTest, OwnLackOfDescriptorsSaysNothingAboutTheDaemon) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  // UBSan needs a descriptor to inspect an object with virtual functions, such
  // as this test, so the path is copied first.
  const std::string path = path_;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto link = ConnectObserver(path, absl::Milliseconds(30));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(link.status().code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(link.status().message()),
              HasSubstr("socket: Too many open files"));
}

TEST_F(ClientTest, DaemonThatDoesNotAnswerIsWaitedForBoundedly) {
  // The kernel accepts the connection into the backlog, but no process reads
  // the Hello.
  const auto link = ConnectObserver(path_, absl::Milliseconds(30));
  EXPECT_EQ(link.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, StaleSocketIsUnavailableAndNoSocketNotFound) {
  StopListening();
  EXPECT_EQ(ConnectObserver(path_).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(ConnectObserver(path_ + "x").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ClientTest, SocketInAFolderThatOthersMayEnterIsNotBelieved) {
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  const auto link = ConnectObserver(path_, absl::Milliseconds(30));
  EXPECT_EQ(link.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(link.status().message()),
              HasSubstr("make its mode 0700"));
}

TEST_F(ClientTest, OverlongPathIsRefusedNotCut) {
  EXPECT_EQ(ConnectObserver(std::string(200, 'x')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fineserve::abi
