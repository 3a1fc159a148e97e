#include "daemon/contract/metrics/snapshot.h"

#include <gtest/gtest.h>

namespace fineserve::metrics {
namespace {

TEST(DurationsTest, ABoundBelongsToItsBucket) {
  Durations durations;
  durations.Add(10'000);           // 10 µs, the first bound
  durations.Add(10'001);           // just above
  durations.Add(400'000'000'000);  // above all bounds
  const DurationCounts counts = durations.Read();
  EXPECT_EQ(counts.buckets.front(), 1u);
  EXPECT_EQ(counts.buckets[1], 1u);
  EXPECT_EQ(counts.buckets.back(), 1u);
  EXPECT_EQ(counts.count(), 3u);
  EXPECT_NEAR(counts.sum_s, 400.00002, 1e-6);
}

}  // namespace
}  // namespace fineserve::metrics
