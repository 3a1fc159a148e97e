#include "daemon/scheduling/local/kv_booking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace fineserve::sched {
namespace {

KvBooking Of(const std::vector<KvClaim>& claims) {
  KvBooking booking;
  for (const KvClaim& c : claims) booking.Add(c);
  return booking;
}

// Returns use(t)'s peak by its definition, token by token.
uint64_t PeakOf(const std::vector<KvClaim>& claims) {
  uint64_t peak = 0;
  for (uint32_t t = 0; t <= kHorizonTokens; ++t) {
    double use = 0;
    for (const KvClaim& c : claims) {
      if (c.growth < t) continue;
      use += c.present + 1.0 * t * c.slope / kHorizonTokens;
    }
    peak = std::max(peak, static_cast<uint64_t>(use));
  }
  return peak;
}

TEST(KvBookingTest, NothingIsBookedWithoutARequest) {
  EXPECT_EQ(KvBooking().Tokens(), 0u);
  EXPECT_EQ(KvBooking().TokensWith({100, 20}), 120u);
}

TEST(KvBookingTest, SequencesThatEndTogetherHaveTheirEndsBooked) {
  EXPECT_EQ(Of({{100, 300}, {200, 300}, {10, 300}}).Tokens(), 1210u);
}

TEST(KvBookingTest, ThoseThatEndSoonMakeRoomForThoseThatGrow) {
  std::vector<KvClaim> claims;
  for (int i = 0; i < 100; ++i) claims.push_back({500, 16});
  for (int i = 0; i < 100; ++i) claims.push_back({16, 496});
  // The peak is after 16 steps: 100 · 516 + 100 · 32; all ends are 102,800.
  const double spread = std::sqrt(100 * 516.0 * 516 + 100 * 512.0 * 512) / 2;
  EXPECT_EQ(Of(claims).Tokens(), 54'800 + static_cast<uint64_t>(spread));
}

TEST(KvBookingTest, SequencesGrowBySlopesOfTheirOwn) {
  // 256 and 64 in a horizon of 512 steps.
  EXPECT_EQ(Of({{100, 512, 256}, {10, 512, 64}}).Tokens(), 356u + 74);
  EXPECT_EQ(Of({{100, 3, 256}}).Tokens(), 102u) << "rounded up";
}

TEST(KvBookingTest, FewSequencesHaveNearlyAllOfTheirEndsBooked) {
  EXPECT_EQ(Of({{500, 16}, {16, 496}}).Tokens(), 548u + 363);
}

TEST(KvBookingTest, IsNeverBelowThePeakNorAboveTheEnds) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<KvClaim> claims;
    uint64_t ends = 0;
    for (uint32_t i = 0, n = random() % 40; i < n; ++i) {
      const auto growth = static_cast<uint32_t>(random());
      claims.push_back({random() % 4000, growth % (kHorizonTokens + 1),
                        random() % 2 == 0 ? kHorizonTokens : random() % 900});
      ends += claims.back().end();
    }
    const uint64_t booked = Of(claims).Tokens();
    EXPECT_GE(booked, PeakOf(claims)) << round;
    EXPECT_LE(booked, ends) << round;
  }
}

TEST(KvBookingTest, RequestThatLeavesIsForgotten) {
  KvBooking booking = Of({{100, 300}, {2'000'000'000, 512}});
  const uint64_t both = booking.Tokens();
  EXPECT_EQ(Of({{2'000'000'000, 512}}).TokensWith({100, 300}), both);
  booking.Remove({2'000'000'000, 512});
  EXPECT_EQ(booking.Tokens(), 400u);
}

}  // namespace
}  // namespace fineserve::sched
