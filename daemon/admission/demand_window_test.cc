#include "daemon/admission/demand_window.h"

#include <gtest/gtest.h>

namespace fineserve::admission {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

DemandCounts Arrived(uint64_t n) { return {n, 100 * n, n, 10 * n, n, 0}; }

TEST(DemandWindowTest, RateIsThatOfTheLastWindow) {
  DemandWindow window(60);
  for (uint64_t t = 0; t <= 100; ++t) {
    const uint64_t arrived = t <= 40 ? 0 : 3 * (t - 40);
    window.Add("gpu", t * kSecond, {{"chat", Arrived(arrived)}});
  }
  const Demand d = window.Of("chat");
  EXPECT_DOUBLE_EQ(d.seconds, 60);
  EXPECT_DOUBLE_EQ(d.rate, 3);
  EXPECT_DOUBLE_EQ(d.prompt_tokens, 100);
  EXPECT_DOUBLE_EQ(d.output_tokens, 10);
  EXPECT_DOUBLE_EQ(d.attainment, 1);
}

TEST(DemandWindowTest, OneSampleTellsNothing) {
  DemandWindow window(60);
  window.Add("gpu", kSecond, {{"chat", Arrived(1000)}});
  EXPECT_EQ(window.Of("chat").seconds, 0);
  EXPECT_EQ(window.Reach(), 0);
}

TEST(DemandWindowTest, IdleModelIsSeenToBeIdle) {
  DemandWindow window(60);
  window.Add("gpu", 0, {{"chat", Arrived(7)}});
  window.Add("gpu", 5 * kSecond, {{"chat", Arrived(7)}});
  EXPECT_EQ(window.Of("chat").seconds, 5);
  EXPECT_EQ(window.Of("chat").rate, 0);
  EXPECT_LT(window.Of("chat").attainment, 0);
}

// Both hear the same proxies; one began later.
TEST(DemandWindowTest, DaemonsAreNotAddedUp) {
  DemandWindow window(60);
  for (uint64_t t = 0; t <= 20; ++t) {
    window.Add("one", t * kSecond, {{"chat", Arrived(2 * t)}});
    window.Add("other", t * kSecond, {{"chat", Arrived(t)}});
  }
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 2);
}

TEST(DemandWindowTest, CountsThatWentBackAreANewDaemons) {
  DemandWindow window(60);
  window.Add("gpu", 0, {{"chat", Arrived(1000)}});
  window.Add("gpu", 5 * kSecond, {{"chat", Arrived(5)}});
  window.Add("gpu", 10 * kSecond, {{"chat", Arrived(10)}});
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 1);
}

// As when no proxy was there for ten minutes.
TEST(DemandWindowTest, WindowBeginsAgainAfterASilence) {
  DemandWindow window(60);
  for (uint64_t t = 0; t <= 60; ++t) {
    window.Add("gpu", t * kSecond, {{"chat", Arrived(6 * t)}});
  }
  for (uint64_t t = 660; t <= 670; ++t) {
    window.Add("gpu", t * kSecond, {{"chat", Arrived(360 + 6 * (t - 660))}});
  }
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 6);
  EXPECT_DOUBLE_EQ(window.Reach(), 10);
}

TEST(DemandWindowTest, SilentDaemonIsForgotten) {
  DemandWindow window(60);
  window.Add("dead", 0, {{"chat", Arrived(0)}});
  window.Add("dead", kSecond, {{"chat", Arrived(50)}});
  for (uint64_t t = 0; t <= 12; ++t) {
    window.Add("live", t * kSecond, {{"chat", Arrived(t)}});
  }
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 1);
}

}  // namespace
}  // namespace fineserve::admission
