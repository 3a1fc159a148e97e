#include "daemon/contract/wire/connection_watch.h"

#include <gtest/gtest.h>

namespace fineserve::wire {
namespace {

constexpr bool kByThisEnd = true, kByPeer = false;

TEST(ConnectionWatchTest, PeerThatGoesAfterItsHandshakeIsNoFault) {
  ConnectionWatch watch;
  watch.Accepted(1);
  watch.Settled();
  EXPECT_FALSE(watch.Ended(1, kByPeer));
}

TEST(ConnectionWatchTest, ConnectionThatThisEndEndsAfterTheHandshakeIsDamaged) {
  ConnectionWatch watch;
  watch.Accepted(1);
  watch.Settled();
  EXPECT_EQ(watch.Ended(1, kByThisEnd), ConnectionFault::kDamaged);
}

TEST(ConnectionWatchTest, StrangerEndsWithoutAHandshake) {
  ConnectionWatch watch;
  for (const bool by : {kByThisEnd, kByPeer}) {
    watch.Accepted(1);
    EXPECT_EQ(watch.Ended(1, by), ConnectionFault::kNoHandshake);
  }
}

TEST(ConnectionWatchTest, StrangerBesideOthersLeavesThemAsTheyAre) {
  ConnectionWatch watch;
  watch.Accepted(1);
  watch.Settled();
  watch.Accepted(2);
  EXPECT_EQ(watch.Ended(1, kByThisEnd), ConnectionFault::kDamaged);
  EXPECT_EQ(watch.Ended(2, kByPeer), ConnectionFault::kNoHandshake);
}

TEST(ConnectionWatchTest, HandshakesThatOverlapAreAllSettledInTheEnd) {
  ConnectionWatch watch;
  for (const int fd : {1, 2, 3}) watch.Accepted(fd);
  watch.Settled();
  watch.Settled();
  // The connection may be one of the two that settled, so it is left uncounted
  // rather than counted wrongly.
  EXPECT_FALSE(watch.Ended(2, kByPeer));
  watch.Settled();
  for (const int fd : {1, 3}) {
    EXPECT_EQ(watch.Ended(fd, kByThisEnd), ConnectionFault::kDamaged);
  }
}

}  // namespace
}  // namespace fineserve::wire
