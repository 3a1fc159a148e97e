#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>

#include "daemon/proxy/http/socket_io.h"

namespace fineserve::proxy {
namespace {

class WakeupTest : public ::testing::Test {
 protected:
  // A coroutine that owns the wakeup, as an exchange does, and is counted when
  // it has gone on.
  void WaitOnce() {
    asio::co_spawn(
        io_,
        [this]() -> asio::awaitable<void> {
          const auto own = std::make_unique<Wakeup>();
          wakeup_ = own.get();
          co_await own->Wait();
          ++went_on_;
        },
        asio::detached);
    io_.poll();
    io_.restart();
  }
  // What the event loop calls.
  template <typename Call>
  void FromTheLoop(Call call) {
    asio::post(io_, call);
    io_.run();
    io_.restart();
  }

  asio::io_context io_{1};
  Wakeup* wakeup_ = nullptr;
  int went_on_ = 0;
};

TEST_F(WakeupTest, SetLetsTheCoroutineGoOnInALaterTurn) {
  WaitOnce();
  FromTheLoop([this] {
    wakeup_->Set();
    EXPECT_EQ(went_on_, 0);
  });
  EXPECT_EQ(went_on_, 1);
}

TEST_F(WakeupTest, SetNowLetsItGoOnAndEndBeforeItReturns) {
  WaitOnce();
  FromTheLoop([this] {
    wakeup_->SetNow();
    EXPECT_EQ(went_on_, 1);
  });
  EXPECT_EQ(went_on_, 1);
}

TEST_F(WakeupTest, WaitThatComesLaterEndsAtOnce) {
  Wakeup early;
  early.SetNow();
  asio::co_spawn(
      io_,
      [&]() -> asio::awaitable<void> {
        co_await early.Wait();
        ++went_on_;
        co_await early.Wait();
        ++went_on_;
      },
      asio::detached);
  io_.poll();
  EXPECT_EQ(went_on_, 1) << "one Set ends one wait";
  early.Set();
  io_.poll();
  EXPECT_EQ(went_on_, 2);
}

}  // namespace
}  // namespace fineserve::proxy
