#include "shim/gate/presence.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace fineserve::shim {
namespace {

using State = Presence::State;

constexpr uint64_t kLongMs = 60'000;

bool Rings(const Presence& presence) {
  pollfd p = {presence.bell(), POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

TEST(PresenceTest, BlockPoolLeavesOnlyWhenAskedAndThenTheMoverKnows) {
  Presence presence;
  EXPECT_FALSE(presence.BeginLeaving());
  presence.Ask();
  std::thread pool([&] {
    EXPECT_TRUE(presence.BeginLeaving());
    presence.Leave(true);
  });
  EXPECT_TRUE(presence.AwaitLeave(kLongMs));
  pool.join();
  EXPECT_EQ(presence.state(), State::kAway);
}

TEST(PresenceTest, BlockPoolThatDoesNotAnswerIsAskedNoLonger) {
  Presence presence;
  presence.Ask();
  EXPECT_FALSE(presence.AwaitLeave(0));
  EXPECT_EQ(presence.state(), State::kHere);
  EXPECT_FALSE(presence.BeginLeaving());
}

TEST(PresenceTest, WaiterLearnsOfEachAskOnceThoughItComesLate) {
  Presence presence;
  EXPECT_FALSE(presence.TakeAsk());
  for (int round = 0; round < 2; ++round) {
    presence.Ask();
    EXPECT_TRUE(presence.TakeAsk());
    EXPECT_FALSE(presence.TakeAsk());
    EXPECT_FALSE(presence.AwaitLeave(0));
  }
  presence.Ask();
  EXPECT_FALSE(presence.AwaitLeave(0));
  EXPECT_FALSE(presence.TakeAsk());  // too late
}

// The engine's view is being unmapped, so the mover must not go on as if the
// engine were active.
TEST(PresenceTest, LeavingThatHasBegunIsWaitedForBeyondTheTimeLimit) {
  Presence presence;
  presence.Ask();
  ASSERT_TRUE(presence.BeginLeaving());
  std::thread pool([&] { presence.Leave(true); });
  EXPECT_TRUE(presence.AwaitLeave(0));
  pool.join();
}

TEST(PresenceTest, BlockPoolThatCannotLeaveIsHere) {
  Presence presence;
  presence.Ask();
  ASSERT_TRUE(presence.BeginLeaving());
  presence.Leave(false);
  EXPECT_FALSE(presence.AwaitLeave(kLongMs));
  EXPECT_EQ(presence.state(), State::kHere);
}

TEST(PresenceTest, ThreadThatNeedsTheMemoryWaitsUntilItIsBack) {
  Presence presence;
  EXPECT_TRUE(presence.WaitWhileAway(0));
  presence.Ask();
  EXPECT_TRUE(presence.WaitWhileAway(0)) << "it has not left";
  ASSERT_TRUE(presence.BeginLeaving());
  EXPECT_FALSE(presence.WaitWhileAway(0)) << "its view may have gone";
  presence.Leave(true);
  EXPECT_FALSE(presence.WaitWhileAway(0));
  std::thread engine([&] { EXPECT_TRUE(presence.WaitWhileAway(kLongMs)); });
  presence.Return();
  engine.join();
}

TEST(PresenceTest, BellRingsUntilItIsAnsweredHoweverOftenItIsPulled) {
  Presence presence;
  presence.Ring();  // no mover listens yet
  ASSERT_TRUE(presence.OpenBell());
  EXPECT_FALSE(Rings(presence));
  for (int i = 0; i < 100'000; ++i) presence.Ring();
  EXPECT_TRUE(Rings(presence));
  presence.AnswerBell();
  EXPECT_FALSE(Rings(presence));
  presence.RestartInChild();
  EXPECT_EQ(presence.bell(), -1);
}

}  // namespace
}  // namespace fineserve::shim
