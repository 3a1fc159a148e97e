#include "daemon/proxy/relay/engine_patience.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kLimitNs = 100 * kSecondNs;

// A stream sent at 1,000 s, with an SLO of 5 s.
EngineWait Stream() {
  EngineWait wait;
  wait.since_ns = 1000 * kSecondNs;
  wait.slo_ends_ns = 1005 * kSecondNs;
  wait.streams = true;
  return wait;
}

NextStep After(const EngineWait& wait, uint64_t seconds) {
  return StepOf(wait, kLimitNs, wait.since_ns + seconds * kSecondNs);
}

TEST(EnginePatienceTest, EngineWithoutASignOfLifeIsGivenUpAtTheLimit) {
  EngineWait wait = Stream();
  EXPECT_EQ(After(wait, 0), NextStep::kWait);
  EXPECT_EQ(After(wait, 99), NextStep::kProbe);
  EXPECT_EQ(After(wait, 100), NextStep::kGiveUp);
  wait.unanswered_ns = wait.since_ns;
  EXPECT_EQ(After(wait, 99), NextStep::kProbe) << "no other engine serves";
}

TEST(EnginePatienceTest, ProgressOfOthersPutsTheLimitOffButNotForEver) {
  EngineWait wait = Stream();
  for (const uint64_t seconds : {100, 500, 999}) {
    wait.progressed_ns = wait.since_ns + (seconds - 1) * kSecondNs;
    EXPECT_EQ(After(wait, seconds), NextStep::kProbe) << "its SLO is over";
  }
  wait.progressed_ns = wait.since_ns + 1000 * kSecondNs;
  EXPECT_EQ(After(wait, 1000), NextStep::kGiveUp);
}

TEST(EnginePatienceTest, WholeAnswersMayTakeFiveTimesAsLong) {
  EngineWait wait = Stream();
  wait.streams = false;
  EXPECT_EQ(After(wait, 499), NextStep::kProbe);
  EXPECT_EQ(After(wait, 500), NextStep::kGiveUp);
}

TEST(EnginePatienceTest, MovableOneGoesOnceHealthIsOwed) {
  EngineWait wait = Stream();
  wait.movable = true;
  EXPECT_EQ(After(wait, 5), NextStep::kProbe) << "nothing is owed";
  wait.unanswered_ns = wait.since_ns + 2 * kSecondNs;
  EXPECT_EQ(After(wait, 4), NextStep::kProbe);
  EXPECT_EQ(After(wait, 5), NextStep::kGiveUp) << "its SLO is over";
  wait.progressed_ns = wait.since_ns + 4 * kSecondNs;
  EXPECT_EQ(After(wait, 5), NextStep::kProbe) << "the engine lives";
  wait.progressed_ns = 0;
  wait.streams = false;
  EXPECT_EQ(After(wait, 5), NextStep::kProbe) << "it shows its end alone";
  EXPECT_EQ(After(wait, 8), NextStep::kGiveUp);
}

// The engine hangs from the request's arrival on and is asked for its /health
// when StepOf first says so.
TEST(EnginePatienceTest, StreamLeavesAHungEngineWithinTwoSecondsAfterItsSlo) {
  constexpr uint64_t kSweepNs = 250'000'000;
  for (const uint64_t slo_ms : {0, 100, 500, 1000, 1500, 2000, 10'000}) {
    EngineWait wait = Stream();
    wait.movable = true;
    wait.slo_ends_ns = wait.since_ns + slo_ms * 1'000'000;
    uint64_t now_ns = wait.since_ns;
    NextStep step;
    while ((step = StepOf(wait, kLimitNs, now_ns)) != NextStep::kGiveUp) {
      if (step == NextStep::kProbe && wait.unanswered_ns == 0) {
        wait.unanswered_ns = now_ns;
      }
      now_ns += kSweepNs;
    }
    EXPECT_LT(now_ns, wait.slo_ends_ns + 2 * kSecondNs - kSweepNs) << slo_ms;
  }
}

}  // namespace
}  // namespace fineserve::proxy
