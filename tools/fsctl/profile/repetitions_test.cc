#include "tools/fsctl/profile/repetitions.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

TEST(RepetitionsTest, MedianIsTheMiddle) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

TEST(RepetitionsTest, OutliersMoveNothingWhileTheyAreFewerThanHalf) {
  EXPECT_EQ(Median({10, 10, 11, 900, 1000}), 11);
  EXPECT_NEAR(Spread({10, 10, 11, 900, 1000}), 1.0 / 11, 1e-12);
  EXPECT_GT(Spread({10, 900, 1000}), 0.1);
}

TEST(RepetitionsTest, SpreadIsRelative) {
  EXPECT_EQ(Spread({}), 0);
  EXPECT_EQ(Spread({0, 0}), 0);
  EXPECT_EQ(Spread({5, 5, 5}), 0);
  EXPECT_NEAR(Spread({9, 10, 11}), 0.1, 1e-12);
  EXPECT_NEAR(Spread({900, 1000, 1100}), 0.1, 1e-12);
}

}  // namespace
}  // namespace fineserve::fsctl
