#include "shim/view/view_swaps.h"

#include <gtest/gtest.h>

namespace fineserve::shim {
namespace {

TEST(ViewSwapsTest, SlabThatWaitsIsOverdueAfterASecondOfOneWait) {
  ViewSwaps swaps;
  EXPECT_FALSE(swaps.IsOverdue(true, 5'000));
  EXPECT_FALSE(swaps.IsOverdue(true, 5'999));
  EXPECT_TRUE(swaps.IsOverdue(true, 6'000));
  EXPECT_FALSE(swaps.IsOverdue(false, 6'000)) << "none waits";
  EXPECT_FALSE(swaps.IsOverdue(true, 6'500));
  EXPECT_TRUE(swaps.IsOverdue(true, 7'500));
  swaps.EndWait();
  EXPECT_FALSE(swaps.IsOverdue(true, 7'501));
}

TEST(ViewSwapsTest, FailureToMapIsReportedOnceAndTriedAgainLater) {
  ViewSwaps swaps;
  EXPECT_TRUE(swaps.MayMap(0));
  swaps.MapLater(5'000);
  EXPECT_FALSE(swaps.MayMap(5'999));
  EXPECT_TRUE(swaps.MayMap(6'000));
  EXPECT_TRUE(swaps.IsFirstFailure());
  EXPECT_FALSE(swaps.IsFirstFailure());
  swaps.Forget();
  EXPECT_TRUE(swaps.MayMap(0));
  EXPECT_TRUE(swaps.IsFirstFailure());
}

TEST(ViewSwapsTest, FiguresOutliveASuspensionAndEndWithTheView) {
  ViewSwaps swaps;
  swaps.Count(7);
  swaps.Count(3);
  swaps.Forget();
  ViewGauges gauges;
  swaps.Show(&gauges);
  EXPECT_EQ(gauges.swaps, 2u);
  EXPECT_EQ(gauges.swaps_ns, 10u);
  EXPECT_EQ(gauges.longest_swap_ns, 7u);
  swaps.Reset();
  swaps.Show(&gauges);
  EXPECT_EQ(gauges.swaps, 0u);
}

}  // namespace
}  // namespace fineserve::shim
