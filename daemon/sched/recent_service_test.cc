#include "daemon/sched/recent_service.h"

#include <gtest/gtest.h>

namespace fineserve::sched {
namespace {

constexpr Micros kSecond = 1'000'000;

TEST(RecentServiceTest, MinuteThatMissesTooMuchBurnsSinceItsFirstSign) {
  RecentService recent;
  for (int i = 0; i < 70; ++i) recent.FirstToken(/*on_time=*/true, kSecond);
  for (int i = 0; i < 30; ++i) {
    recent.Refused(WaitedFor::kKv, 2 * kSecond);
  }
  EXPECT_EQ(recent.BurnsSince(2 * kSecond), absl::nullopt) << "just allowed";
  recent.FirstToken(/*on_time=*/false, 3 * kSecond);
  EXPECT_EQ(recent.BurnsSince(3 * kSecond), 3 * kSecond);
  recent.Refused(WaitedFor::kBatch, 9 * kSecond);
  EXPECT_EQ(recent.BurnsSince(9 * kSecond), 3 * kSecond);
  const RecentService::Counts counts = recent.Of(9 * kSecond);
  EXPECT_EQ(counts.on_time, 70u);
  EXPECT_EQ(counts.late, 1u);
  EXPECT_EQ(counts.all_refused(), 31u);
  EXPECT_EQ(counts.refused[static_cast<size_t>(WaitedFor::kKv)], 30u);
}

TEST(RecentServiceTest, WhatIsAMinuteOldIsForgotten) {
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

TEST(RecentServiceTest, FewRequestsSayLittle) {
  RecentService recent;
  for (int i = 0; i < 9; ++i) recent.Refused(WaitedFor::kKv, 0);
  EXPECT_EQ(recent.BurnsSince(0), absl::nullopt);
  recent.Refused(WaitedFor::kKv, 0);
  EXPECT_EQ(recent.BurnsSince(0), 0);
}

}  // namespace
}  // namespace fineserve::sched
