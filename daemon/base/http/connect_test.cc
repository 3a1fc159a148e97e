// Tests of connections to hosts by name, with this program's own getaddrinfo.

#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/base/http/socket_io.h"

namespace {

// The lookup of "slow.test" lasts until Release; every name resolves to this
// machine.
class NameServer {
 public:
  void Reset() {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked_ = 0;
    released_ = false;
  }
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  void Ask(const std::string& host) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return host != "slow.test" || released_; });
  }
  int asked() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0;
  bool released_ = false;
};

NameServer& Names() {
  static auto* const names = new NameServer;  // outlives every lookup
  return *names;
}

struct Found {
  addrinfo info = {};
  sockaddr_in address = {};
};

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* service,
                           const addrinfo*, addrinfo** out) {
  Names().Ask(host);
  auto* const found = new Found;
  found->address.sin_family = AF_INET;
  found->address.sin_port =
      htons(static_cast<uint16_t>(service ? atoi(service) : 0));
  found->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  found->info.ai_family = AF_INET;
  found->info.ai_socktype = SOCK_STREAM;
  found->info.ai_addr = reinterpret_cast<sockaddr*>(&found->address);
  found->info.ai_addrlen = sizeof(found->address);
  *out = &found->info;
  return 0;
}

extern "C" void freeaddrinfo(addrinfo* info) {
  delete reinterpret_cast<Found*>(info);
}

namespace fineserve::proxy {
namespace {

class ConnectTest : public ::testing::Test {
 protected:
  ConnectTest() { Names().Reset(); }
  ~ConnectTest() override { Names().Release(); }

  // Connects in the background and counts the connections that succeed.
  void Begin(const std::string& host) {
    asio::co_spawn(
        *io_,
        [this, host]() -> asio::awaitable<void> {
          tcp::socket socket(*io_);
          const error_code e = co_await Connect(
              &socket, host, listener_->local_endpoint().port());
          ++(e ? failed_ : connected_);
        },
        [](std::exception_ptr e) {
          if (e) std::rethrow_exception(e);
        });
  }
  template <typename Condition>
  bool RunUntil(Condition condition) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      io_->run_for(std::chrono::milliseconds(5));
      io_->restart();
    }
    return condition();
  }

  std::unique_ptr<asio::io_context> io_ = std::make_unique<asio::io_context>();
  std::unique_ptr<tcp::acceptor> listener_ = std::make_unique<tcp::acceptor>(
      *io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  int connected_ = 0, failed_ = 0;
};

TEST_F(ConnectTest, NumericAddressesAreNotLookedUp) {
  Begin("127.0.0.1");
  EXPECT_TRUE(RunUntil([&] { return connected_ == 1; }));
  EXPECT_EQ(Names().asked(), 0);
}

TEST_F(ConnectTest, NameIsLookedUpOnceForManyConnections) {
  for (int n = 0; n < 10; ++n) Begin("a.test");
  EXPECT_TRUE(RunUntil([&] { return connected_ == 10; }));
  Begin("a.test");
  EXPECT_TRUE(RunUntil([&] { return connected_ == 11; }));
  EXPECT_EQ(Names().asked(), 1);
}

TEST_F(ConnectTest, LookupThatHangsDelaysNoOther) {
  Begin("slow.test");
  EXPECT_TRUE(RunUntil([&] { return Names().asked() == 1; }));
  Begin("a.test");
  EXPECT_TRUE(RunUntil([&] { return connected_ == 1; }));
}

TEST_F(ConnectTest, LookupThatHangsIsGivenUpAndIsNotBegunAgain) {
  Begin("slow.test");
  EXPECT_TRUE(RunUntil([&] { return failed_ == 1; }));
  Begin("slow.test");
  EXPECT_TRUE(RunUntil([&] { return failed_ == 2; }));
  EXPECT_EQ(Names().asked(), 1);
  Names().Release();
  EXPECT_TRUE(RunUntil([&] {
    if (connected_ == 0) Begin("slow.test");
    return connected_ > 0;
  }));
}

// The proxy ends while a lookup is under way, and the lookup ends later.
TEST_F(ConnectTest, LookupThatHangsDoesNotHoldUpTheEnd) {
  Begin("slow.test");
  EXPECT_TRUE(RunUntil([&] { return Names().asked() == 1; }));
  std::atomic<bool> ended = false;
  std::thread end([&] {
    listener_.reset();
    io_.reset();
    ended = true;
  });
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!ended && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_TRUE(ended);
  Names().Release();
  end.join();
}

}  // namespace
}  // namespace fineserve::proxy
