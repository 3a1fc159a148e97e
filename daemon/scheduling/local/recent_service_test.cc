#include "daemon/scheduling/local/recent_service.h"

#include <gtest/gtest.h>

namespace fineserve::sched {
namespace {

constexpr Micros kSecond = 1'000'000;

TEST(RecentServiceTest, MinuteThatMissesTooMuchBurnsSinceItsFirstSign) {
  RecentService recent;
  for (int i = 0; i < 70; ++i) recent.FirstToken(/*on_time=*/true, 0, kSecond);
  for (int i = 0; i < 30; ++i) {
    recent.Refused(WaitedFor::kKv, 2 * kSecond);
  }
  EXPECT_EQ(recent.BurnsSince(2 * kSecond), absl::nullopt) << "just allowed";
  recent.FirstToken(/*on_time=*/false, 0, 3 * kSecond);
  EXPECT_EQ(recent.BurnsSince(3 * kSecond), 3 * kSecond);
  recent.Refused(WaitedFor::kBatch, 9 * kSecond);
  EXPECT_EQ(recent.BurnsSince(9 * kSecond), 3 * kSecond);
  const RecentService::Counts counts = recent.Of(9 * kSecond);
  EXPECT_EQ(counts.on_time, 70u);
  EXPECT_EQ(counts.late, 1u);
  EXPECT_EQ(counts.all_refused(), 31u);
  EXPECT_EQ(counts.refused[static_cast<size_t>(WaitedFor::kKv)], 30u);
}

TEST(RecentServiceTest, EntryOfAMinuteAgoIsForgotten) {
  RecentService recent;
  for (int i = 0; i < 20; ++i) recent.Refused(WaitedFor::kKv, kSecond);
  EXPECT_TRUE(recent.BurnsSince(59 * kSecond).has_value());
  EXPECT_EQ(recent.BurnsSince(60 * kSecond), absl::nullopt) << "nothing comes";
  for (int i = 0; i < 20; ++i) {
    recent.Refused(WaitedFor::kKv, 100 * kSecond);
  }
  EXPECT_EQ(recent.BurnsSince(100 * kSecond), 100 * kSecond) << "another one";
  EXPECT_EQ(recent.Of(100 * kSecond).all_refused(), 20u);
}

TEST(RecentServiceTest, TtftIsRightToATenthOverTheLastMinute) {
  RecentService recent;
  EXPECT_EQ(recent.Ttft(0.5, 0), absl::nullopt);
  recent.FirstToken(/*on_time=*/true, 30 * kSecond, 0);
  for (int ms = 1; ms <= 1000; ++ms) {
    recent.FirstToken(/*on_time=*/true, ms * 1000, 70 * kSecond);
  }
  EXPECT_NEAR(*recent.Ttft(0.5, 70 * kSecond), 500'000, 50'000);
  EXPECT_NEAR(*recent.Ttft(0.99, 70 * kSecond), 990'000, 99'000);
  EXPECT_NEAR(*recent.Ttft(0, 70 * kSecond), 1000, 100);
  recent.FirstToken(/*on_time=*/true, 3600 * kSecond, 140 * kSecond);
  EXPECT_GT(*recent.Ttft(1, 140 * kSecond), 100 * kSecond) << "no longer known";
}

TEST(RecentServiceTest, FewRequestsSayLittle) {
  RecentService recent;
  for (int i = 0; i < 9; ++i) recent.Refused(WaitedFor::kKv, 0);
  EXPECT_EQ(recent.BurnsSince(0), absl::nullopt);
  recent.Refused(WaitedFor::kKv, 0);
  EXPECT_EQ(recent.BurnsSince(0), 0);
}

}  // namespace
}  // namespace fineserve::sched
