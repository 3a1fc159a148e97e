#include "tools/lab/workload/zones.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fineserve::workload {
namespace {

constexpr size_t kSlotsOfDay = 144;

// Returns a day in which each hour's rate is the hour's number.
std::vector<double> Hours() {
  std::vector<double> shape(kSlotsOfDay);
  for (size_t i = 0; i < shape.size(); ++i) {
    shape[i] = static_cast<double>(i / 6);
  }
  return shape;
}

Zones ThreeZones() {
  Zones zones;
  zones.models = {"a", "b", "c"};
  zones.shape = Hours();
  zones.seconds = 180;
  zones.speed = 480;
  zones.busiest_rate = 46;
  return zones;
}

TEST(ZonesTest, ADayPassesInSlotsThatAreShorterByTheSpeed) {
  const Slots slots = RatesOf(ThreeZones());
  EXPECT_EQ(slots.streams.size(), kSlotsOfDay);
  EXPECT_EQ(slots.seconds, 1.25);
}

TEST(ZonesTest, EachModelIsEightHoursAheadOfTheOneBefore) {
  const Slots slots = RatesOf(ThreeZones());
  const auto& begin = slots.streams[0];
  ASSERT_EQ(begin.size(), 3u);
  EXPECT_EQ(begin[0].model, "a");
  EXPECT_EQ(begin[0].per_second, 0);
  EXPECT_EQ(begin[1].per_second, 16);  // its hour is 8, of which 23 has 46
  EXPECT_EQ(begin[2].per_second, 32);
  EXPECT_EQ(slots.streams[48][0].per_second, begin[1].per_second);
  EXPECT_EQ(slots.streams[96][2].per_second, begin[1].per_second);
}

TEST(ZonesTest, TheBusiestHourHasTheGivenRate) {
  const Slots slots = RatesOf(ThreeZones());
  double most = 0;
  for (const auto& streams : slots.streams) {
    for (const auto& stream : streams) most = std::max(most, stream.per_second);
  }
  EXPECT_DOUBLE_EQ(most, 46);
}

TEST(ZonesTest, ShortRunsMeanIsItsBusiest) {
  Zones zones = ThreeZones();
  zones.models = {"a"};
  zones.shape = {1, 3};
  zones.seconds = 2.5;
  const Slots slots = RatesOf(zones);
  ASSERT_EQ(slots.streams.size(), 2u);
  EXPECT_DOUBLE_EQ(slots.streams[0][0].per_second, 23);
  EXPECT_DOUBLE_EQ(slots.streams[1][0].per_second, 69);
}

TEST(ZonesTest, MeansCountTheLastSlotForAsLongAsItLasts) {
  Slots slots;
  slots.seconds = 10;
  slots.streams = {{{"a", 2}, {"b", 1}}, {{"a", 8}, {"b", 1}}};
  const std::vector<double> means = MeanRates(slots, 15);
  ASSERT_EQ(means.size(), 2u);
  EXPECT_DOUBLE_EQ(means[0], 4);
  EXPECT_DOUBLE_EQ(means[1], 1);
}

TEST(RateForTest, CountsWholeBlocksForTheTimeOfTheAnswer) {
  KvNeed need;
  need.pool_bytes = 1000;
  need.block_bytes = 10;
  need.block_tokens = 16;
  need.lengths = {60, 8};  // 5 blocks: 20 requests at once
  need.token_seconds = 0.5;
  EXPECT_DOUBLE_EQ(RateFor(need, 1), 5);
  EXPECT_DOUBLE_EQ(RateFor(need, 0.5), 2.5);
}

}  // namespace
}  // namespace fineserve::workload
