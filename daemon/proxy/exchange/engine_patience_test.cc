#include "daemon/proxy/exchange/engine_patience.h"

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
  EXPECT_EQ(After(wait, 1), NextStep::kWait);
  EXPECT_EQ(After(wait, 99), NextStep::kProbe);
  EXPECT_EQ(After(wait, 100), NextStep::kGiveUp);
  wait.missed_probes = 3;
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

TEST(EnginePatienceTest, MovableOneGoesOnceProbesAreMissed) {
  EngineWait wait = Stream();
  wait.movable = true;
  wait.missed_probes = 1;
  EXPECT_EQ(After(wait, 4), NextStep::kProbe);
  EXPECT_EQ(After(wait, 5), NextStep::kGiveUp) << "its SLO is over";
  wait.progressed_ns = wait.since_ns + 4 * kSecondNs;
  EXPECT_EQ(After(wait, 5), NextStep::kProbe) << "the engine lives";
  wait.progressed_ns = 0;
  wait.streams = false;
  EXPECT_EQ(After(wait, 5), NextStep::kProbe) << "it shows its end alone";
  wait.missed_probes = 3;
  EXPECT_EQ(After(wait, 2), NextStep::kGiveUp);
}

}  // namespace
}  // namespace fineserve::proxy
