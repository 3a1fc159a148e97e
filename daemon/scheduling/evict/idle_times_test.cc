#include "daemon/scheduling/evict/idle_times.h"

#include <gtest/gtest.h>

#include <random>

namespace fineserve::evict {
namespace {

using sched::Micros;

constexpr Micros kOneSecond = 1'000'000;
const IdleTimes kNone;

TEST(IdleTimesTest, WithoutAPastALongWaitGetsLonger) {
  const IdleTimes unknown;
  const double at_first = unknown.ChanceWithin(kOneSecond, 0, kNone);
  const double later =
      unknown.ChanceWithin(kOneSecond, 100 * kOneSecond, kNone);
  EXPECT_NEAR(at_first, 0.5, 1e-9);
  EXPECT_NEAR(later, 0.01, 0.001);
}

TEST(IdleTimesTest, RequestAtEqualIntervalsIsExpectedWhenItIsDue) {
  IdleTimes times;
  for (int i = 0; i < 50; ++i) times.Ended(60 * kOneSecond);
  const double early =
      times.ChanceWithin(10 * kOneSecond, 10 * kOneSecond, kNone);
  const double due =
      times.ChanceWithin(10 * kOneSecond, 58 * kOneSecond, kNone);
  EXPECT_LT(early, 0.05);
  EXPECT_GT(due, 0.3);
}

// The chance for a Poisson process is 1 - exp(-horizon / mean), however long it
// has waited.
TEST(IdleTimesTest, ChanceIsThatOfTheProcessThatItLearntFrom) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> gap(1.0 / 20e6);
  IdleTimes times;
  for (int i = 0; i < 2000; ++i) times.Ended(static_cast<Micros>(gap(random)));
  for (const Micros idle : {0, 5, 20}) {
    EXPECT_NEAR(times.ChanceWithin(20 * kOneSecond, idle * kOneSecond, kNone),
                0.632, 0.15)
        << idle;
  }
}

TEST(IdleTimesTest, OthersCountAsMuchAsAFewOfItsOwn) {
  IdleTimes others;
  for (int i = 0; i < 100; ++i) others.Ended(kOneSecond);
  IdleTimes rare;
  const double at_first = rare.ChanceWithin(30 * kOneSecond, 0, others);
  EXPECT_GT(at_first, 0.95);
  for (int i = 0; i < 30; ++i) rare.Ended(3600 * kOneSecond);
  EXPECT_LT(rare.ChanceWithin(30 * kOneSecond, 0, others), 0.2);
}

TEST(IdleTimesTest, ChangesWithItsModel) {
  IdleTimes times;
  for (int i = 0; i < 100; ++i) times.Ended(kOneSecond);
  for (int i = 0; i < 150; ++i) times.Ended(600 * kOneSecond);
  EXPECT_LT(times.ChanceWithin(10 * kOneSecond, 0, kNone), 0.1);
}

TEST(IdleTimesTest, ChanceIsOneForAnyTimeAndGrowsWithTheHorizon) {
  std::mt19937_64 random(1);
  IdleTimes times, others;
  for (int i = 0; i < 2000; ++i) {
    (i % 3 == 0 ? others : times)
        .Ended(static_cast<Micros>(uint64_t{1} << random() % 50));
    const auto idle = static_cast<Micros>(uint64_t{1} << random() % 50);
    double before = 0;
    for (Micros horizon = 1; horizon < (Micros{1} << 50); horizon *= 16) {
      const double chance = times.ChanceWithin(horizon, idle, others);
      ASSERT_GE(chance, before - 1e-12);
      ASSERT_LE(chance, 1);
      before = chance;
    }
  }
}

}  // namespace
}  // namespace fineserve::evict
