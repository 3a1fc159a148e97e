#include "bench/report/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fineserve::bench {
namespace {

TEST(IntervalTest, MeanOfThreeHasStudentsWidth) {
  // s = 1, √3 seeds, t(2) = 4.303.
  const Interval i = MeanOf({1, 2, 3});
  EXPECT_DOUBLE_EQ(i.mean, 2);
  EXPECT_NEAR(i.half, 4.303 / std::sqrt(3.0), 1e-9);
  EXPECT_DOUBLE_EQ(i.low() + i.high(), 4);
}

TEST(IntervalTest, OneValueHasNoWidthThatIsKnown) {
  EXPECT_EQ(MeanOf({5}).mean, 5);
  EXPECT_TRUE(std::isinf(MeanOf({5}).half));
  EXPECT_TRUE(std::isinf(MeanOf({}).half));
  EXPECT_EQ(Text(MeanOf({5})), "5");
}

TEST(IntervalTest, RatiosAreTakenSeedBySeed) {
  // Loads differ tenfold, but the ratio does not.
  const Interval i = RatioOf({2, 20, 200}, {1, 10, 100});
  EXPECT_DOUBLE_EQ(i.mean, 2);
  EXPECT_DOUBLE_EQ(i.half, 0);
  EXPECT_EQ(Text(i), "2 ± 0");
}

TEST(IntervalTest, SeedsWithNothingToDivideByAreLeftOut) {
  EXPECT_DOUBLE_EQ(RatioOf({2, 5, 4}, {1, 0, 2}).mean, 2);
}

TEST(IntervalTest, DifferencesAreTakenSeedBySeed) {
  const Interval i = DifferenceOf({3, 30}, {1, 28});
  EXPECT_DOUBLE_EQ(i.mean, 2);
  EXPECT_DOUBLE_EQ(i.half, 0);
}

}  // namespace
}  // namespace fineserve::bench
