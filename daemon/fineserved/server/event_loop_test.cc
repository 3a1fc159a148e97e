#include "daemon/fineserved/server/event_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <memory>

#include "kernels/driver/descriptor.h"

namespace fineserve::server {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

void Spend(milliseconds time) {
  for (const auto end = SteadyClock::now() + time; SteadyClock::now() < end;) {
  }
}

class EventLoopTest : public ::testing::Test {
 protected:
  // Handles one event that takes this long.
  void Handle(milliseconds time) {
    const driver::Descriptor ready(eventfd(1, EFD_CLOEXEC));
    const auto source = loop_.OnReadable(ready.get(), [&] { Spend(time); });
    EXPECT_TRUE(loop_.RunOnce());
  }

  EventLoop loop_;
};

TEST_F(EventLoopTest, LongestTurnIsThatOfTheSlowestEvent) {
  EXPECT_EQ(loop_.longest_turn_us(), 0u);
  Handle(milliseconds(3));
  EXPECT_GE(loop_.longest_turn_us(), 3'000u);
  Handle(milliseconds(20));
  const uint64_t longest = loop_.longest_turn_us();
  EXPECT_GE(longest, 20'000u);
  Handle(milliseconds(0));
  EXPECT_GE(loop_.longest_turn_us(), longest);
}

TEST_F(EventLoopTest, WaitingIsNoTurn) {
  const auto start = SteadyClock::now();
  bool rang = false;
  const auto alarm = loop_.OnAlarm([&] {
    rang = true;
    loop_.Stop();
  });
  const auto at = start + milliseconds(200);
  alarm->Set(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(
          at.time_since_epoch())
          .count()));
  loop_.Run();
  EXPECT_TRUE(rang);
  EXPECT_GE(SteadyClock::now() - start, milliseconds(199));
  EXPECT_LT(loop_.longest_turn_us(), 199'000u);
}

}  // namespace
}  // namespace fineserve::server
