// Tests, over real sockets and loopback TCP, which peers may talk to a daemon
// of another machine.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "daemon/contract/wire/keys.h"
#include "daemon/contract/wire/socket.h"
#include "kernels/driver/descriptor.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::wire {
namespace {

using driver::Descriptor;
using process::Eventually;

Descriptor ConnectTo(uint16_t port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected =
      connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  return connected ? std::move(fd) : Descriptor();
}

// A daemon's socket on a path and a port, which trusts machine "a".
class CurveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    own_ = *NewKeyPair();
    ASSERT_TRUE(keys_.WriteOwn(own_, false).ok());
    ASSERT_TRUE(keys_.Trust("a", a_.public_key).ok());
    auto server = ServerSocket::Bind(path_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_.emplace(*std::move(server));
    const absl::Status s = server_->AlsoBind("127.0.0.1", port_, keys_);
    ASSERT_TRUE(s.ok()) << s;
  }

  ClientSocket Client(const KeyPair& own, const std::string& server_key,
                      uint16_t port = 0) const {
    auto client = ClientSocket::Connect(
        RemoteDaemon{"127.0.0.1", port == 0 ? port_ : port, server_key}, own);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  // Sends `bytes` until the server receives them; false if it does not.
  bool Arrives(ClientSocket* client, const std::string& bytes) {
    return Eventually([&] {
      client->Send(bytes);
      const auto incoming = server_->Receive();
      if (!incoming) return false;
      peer_ = incoming->peer;
      return incoming->bytes == bytes;
    });
  }
  // Expects that any message that arrives is from the last client, which sends
  // until it is heard.
  void ExpectNoOther() {
    const auto incoming = server_->Receive();
    if (incoming) {
      EXPECT_EQ(incoming->peer, peer_);
    }
  }
  uint64_t Count(ConnectionFault why) const {
    return server_->refused()[static_cast<size_t>(why)];
  }
  uint64_t All() const {
    const FaultCounts counts = server_->refused();
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  }
  // True if the client was refused for this reason, and nothing that it sent
  // arrived.
  bool IsRefused(ClientSocket* client, ConnectionFault why) {
    const uint64_t before = Count(why);
    return Eventually([&] {
      EXPECT_FALSE(client->Send("from a stranger"));
      EXPECT_FALSE(server_->Receive().has_value());
      return Count(why) > before;
    });
  }
  // Sends `bytes` on a raw connection, and expects a refusal for this reason
  // and no other.
  void ExpectRefused(const std::string& bytes, ConnectionFault why) {
    const uint64_t before = All(), its = Count(why);
    const Descriptor raw = ConnectTo(port_);
    ASSERT_EQ(write(raw.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_TRUE(Eventually([&] {
      ExpectNoOther();
      return All() > before;
    }));
    EXPECT_EQ(Count(why), its + 1);
  }

  const process::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/GPU-1.admission";
  const KeyFolder keys_{folder_.path()};
  const KeyPair a_ = *NewKeyPair();
  KeyPair own_;
  const uint16_t port_ = process::FreePort();
  std::optional<ServerSocket> server_;
  std::string peer_;
};

TEST_F(CurveTest, ATrustedMachineIsHeardAndAnswered) {
  ClientSocket client = Client(a_, own_.public_key);
  ASSERT_TRUE(Arrives(&client, "hello"));
  ASSERT_TRUE(server_->Send(peer_, "answer"));
  EXPECT_TRUE(Eventually([&] { return client.Receive() == "answer"; }));
  EXPECT_EQ(All(), 0u);
}

TEST_F(CurveTest, TheSocketInTheFolderNeedsNoKeyAsBefore) {
  auto local = ClientSocket::Connect(path_);
  ASSERT_TRUE(local.ok());
  EXPECT_TRUE(Arrives(&*local, "hello"));
}

TEST_F(CurveTest, AnUnknownKeyIsRefusedAndCounted) {
  ClientSocket stranger = Client(*NewKeyPair(), own_.public_key);
  EXPECT_TRUE(IsRefused(&stranger, ConnectionFault::kUntrusted));
  EXPECT_EQ(All(), Count(ConnectionFault::kUntrusted));
}

TEST_F(CurveTest, ClientThatExpectsAnotherMachineIsRefusedAndCounted) {
  ClientSocket client = Client(a_, NewKeyPair()->public_key);
  EXPECT_TRUE(IsRefused(&client, ConnectionFault::kNoHandshake));
  EXPECT_EQ(All(), Count(ConnectionFault::kNoHandshake));
}

TEST_F(CurveTest, TrustCountsFromTheMomentItIsGiven) {
  const KeyPair b = *NewKeyPair();
  ClientSocket client = Client(b, own_.public_key);
  ASSERT_TRUE(IsRefused(&client, ConnectionFault::kUntrusted));
  ASSERT_TRUE(keys_.Trust("b", b.public_key).ok());
  ClientSocket again = Client(b, own_.public_key);
  EXPECT_TRUE(Arrives(&again, "hello"));
}

TEST_F(CurveTest, AFileOfTrustedKeysThatCannotBeReadIsReported) {
  EXPECT_EQ(server_->trouble(), "");
  const std::string path = keys_.path() + "/trusted";
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ClientSocket refused = Client(a_, own_.public_key);
  EXPECT_TRUE(IsRefused(&refused, ConnectionFault::kUntrusted));
  EXPECT_THAT(server_->trouble(), ::testing::HasSubstr(path));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ClientSocket again = Client(a_, own_.public_key);
  EXPECT_TRUE(Arrives(&again, "one"));
  EXPECT_EQ(server_->trouble(), "");
}

TEST_F(CurveTest, BytesThatAreNoHandshakeAreRefusedAndTheOthersGoOn) {
  ClientSocket client = Client(a_, own_.public_key);
  ASSERT_TRUE(Arrives(&client, "before"));
  // A greeting of ZMTP 3.0 with mechanism NULL, and bytes that are no greeting.
  std::string null_greeting(64, '\0');
  null_greeting.replace(0, 12, std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0", 12));
  null_greeting.replace(12, 4, "NULL");
  std::string garbled = null_greeting;
  garbled.replace(12, 5, "CURVE");
  garbled += std::string("\4\xc8", 2) + std::string(200, 'x');
  for (const std::string& bytes :
       {null_greeting, garbled, std::string("GET / HTTP/1.1\r\n\r\n")}) {
    ExpectRefused(bytes, ConnectionFault::kNoHandshake);
  }
  EXPECT_TRUE(Arrives(&client, "after"));
}

// A man in the middle: passes one connection on, keeps what the client says,
// and changes or repeats it on request.
class Eavesdropper {
 public:
  Eavesdropper(uint16_t port, uint16_t to) : listener_(Listen(port)), to_(to) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Eavesdropper() {
    stop_ = true;
    thread_.join();
  }
  std::string recorded() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return recorded_;
  }
  // True if the server has ended the connection.
  bool server_ended() const { return server_ended_; }
  // Changes one bit of what the client sends next.
  void GarbleNext() { garbles_ = true; }
  // Repeats once what the client sends next.
  void RepeatNext() { repeats_ = true; }

 private:
  static Descriptor Listen(uint16_t port) {
    Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }

  void Run() {
    Descriptor client, server;
    while (!stop_) {
      pollfd ready[3] = {{client.get() < 0 ? listener_.get() : -1, POLLIN, 0},
                         {client.get(), POLLIN, 0},
                         {server.get(), POLLIN, 0}};
      poll(ready, 3, 10);
      if (ready[0].revents != 0) {
        client = Descriptor(accept(listener_.get(), nullptr, nullptr));
        server = ConnectTo(to_);
      }
      if (ready[1].revents != 0 && !Pass(client, server, true)) return;
      if (ready[2].revents != 0 && !Pass(server, client, false)) {
        server_ended_ = true;
        return;
      }
    }
  }
  bool Pass(const Descriptor& from, const Descriptor& to, bool keep) {
    char bytes[4096];
    const ssize_t got = read(from.get(), bytes, sizeof(bytes));
    if (got <= 0) return false;
    if (keep) {
      const std::lock_guard<std::mutex> lock(mutex_);
      recorded_.append(bytes, static_cast<size_t>(got));
      if (garbles_.exchange(false)) bytes[got - 1] ^= 1;
    }
    const int times = keep && repeats_.exchange(false) ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      if (write(to.get(), bytes, static_cast<size_t>(got)) != got) return false;
    }
    return true;
  }

  const Descriptor listener_;
  const uint16_t to_;
  std::atomic<bool> stop_{false}, garbles_{false}, repeats_{false},
      server_ended_{false};
  mutable std::mutex mutex_;
  std::string recorded_;
  std::thread thread_;
};

TEST_F(CurveTest, AFrameThatWasChangedOnItsWayIsRefusedAndCounted) {
  const uint16_t port = process::FreePort();
  Eavesdropper eavesdropper(port, port_);
  ClientSocket client = Client(a_, own_.public_key, port);
  ASSERT_TRUE(Arrives(&client, "before"));
  eavesdropper.GarbleNext();
  ASSERT_TRUE(client.Send("drain nothing"));
  EXPECT_TRUE(Eventually([&] {
    const auto incoming = server_->Receive();
    EXPECT_FALSE(incoming && incoming->bytes != "before") << incoming->bytes;
    return Count(ConnectionFault::kDamaged) == 1;
  }));
  EXPECT_EQ(All(), 1u);
  // Otherwise the connection would be kept forever, and its peer would not
  // reconnect.
  EXPECT_TRUE(Eventually([&] { return eavesdropper.server_ended(); }));
}

TEST_F(CurveTest, AFrameThatIsSentAgainIsHeardOnceAndCounted) {
  const uint16_t port = process::FreePort();
  Eavesdropper eavesdropper(port, port_);
  ClientSocket client = Client(a_, own_.public_key, port);
  // Sends once, so that nothing else is on its way together with the frame.
  ASSERT_TRUE(Eventually([&] { return client.Send("before"); }));
  ASSERT_TRUE(Eventually([&] { return server_->Receive().has_value(); }));
  eavesdropper.RepeatNext();
  ASSERT_TRUE(client.Send("drain once"));
  ASSERT_TRUE(
      Eventually([&] { return Count(ConnectionFault::kDamaged) == 1; }));
  // The count may come before the good frame.
  absl::optional<ServerSocket::Incoming> incoming;
  ASSERT_TRUE(Eventually([&] {
    incoming = server_->Receive();
    return incoming.has_value();
  }));
  EXPECT_EQ(incoming->bytes, "drain once");
  EXPECT_FALSE(server_->Receive());
  EXPECT_EQ(All(), 1u);
}

TEST_F(CurveTest, OverheardBytesAreWorthNothing) {
  const uint16_t port = process::FreePort();
  const Eavesdropper eavesdropper(port, port_);
  ClientSocket client = Client(a_, own_.public_key, port);
  ASSERT_TRUE(Arrives(&client, "drain everything"));
  const std::string overheard = eavesdropper.recorded();
  ASSERT_GT(overheard.size(), 300u);
  EXPECT_THAT(overheard, ::testing::Not(::testing::HasSubstr("drain")));
  ExpectRefused(overheard, ConnectionFault::kNoHandshake);
}

TEST_F(CurveTest, WithoutKeysNothingListens) {
  const process::TemporaryFolder empty;
  auto server = ServerSocket::Bind(folder_.path() + "/GPU-2.admission");
  const uint16_t port = process::FreePort();
  const absl::Status s =
      server->AlsoBind("127.0.0.1", port, KeyFolder(empty.path()));
  EXPECT_TRUE(absl::IsNotFound(s)) << s;
  EXPECT_LT(ConnectTo(port).get(), 0);
}

}  // namespace
}  // namespace fineserve::wire
