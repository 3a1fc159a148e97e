#include "tools/fsctl/profile/point_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

std::string Trouble(const absl::Status& status) {
  return std::string(status.message());
}

TEST(PointPlanTest, EveryBatchMeetsEveryPromptOnceTheLeastWorkFirst) {
  const auto points = PlanPoints({8, 1, 8}, {256, 64});
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].Title(), "batch 1, 64 tokens");
  EXPECT_EQ(points[1].Title(), "batch 1, 256 tokens");
  EXPECT_EQ(points[2].Title(), "batch 8, 64 tokens");
  EXPECT_EQ(points[3].Title(), "batch 8, 256 tokens");
}

// With chunks of 512 tokens, 32 prompts of 1024 take 64 steps. The request that
// was filled first must still generate when the last one begins.
TEST(PointPlanTest, AnswersOutlastTheFillingOfTheirBatch) {
  const auto points = PlanPoints({1, 32}, {1024});
  EXPECT_LT(points[0].output_tokens, 32u);
  EXPECT_GT(points[1].output_tokens, 64u + 16);
}

TEST(PointPlanTest, OneBatchIsTooFew) {
  EXPECT_TRUE(CheckPoints({1, 8}, {64}).ok());
  EXPECT_THAT(Trouble(CheckPoints({8, 8}, {64, 256})),
              HasSubstr("--batches two at least"));
  EXPECT_FALSE(CheckPoints({1, 8}, {}).ok());
  EXPECT_FALSE(CheckPoints({0, 8}, {64}).ok());
  EXPECT_FALSE(CheckPoints({1, 8}, {0}).ok());
}

TEST(PointPlanTest, PointLongerThanTheModelIsNamed) {
  const auto points = PlanPoints({1, 2}, {64, 1024});
  EXPECT_TRUE(CheckLengths(points, 0).ok()) << "not known";
  EXPECT_TRUE(CheckLengths(points, 2048).ok());
  EXPECT_THAT(Trouble(CheckLengths(points, 1040)),
              HasSubstr("batch 1, 1024 tokens: with 27 tokens of answer it is "
                        "longer than the model's 1040"));
}

class RepeatingTest : public ::testing::Test {
 protected:
  RepeatingTest() {
    for (const PlannedPoint& p : PlanPoints({1, 2}, {64})) {
      points_.push_back({p, {}, ""});
    }
  }
  // Follows NextPoint, using these times in turn, and returns the order of the
  // points.
  std::vector<size_t> Order(const std::vector<double>& times) {
    std::vector<size_t> order;
    while (const auto next = NextPoint(points_)) {
      const double t = times[points_[*next].samples.size() % times.size()];
      points_[*next].samples.push_back({t, t, 64});
      order.push_back(*next);
    }
    return order;
  }
  std::vector<PointSamples> points_;
};

TEST_F(RepeatingTest, RoundsGoOverAllPoints) {
  EXPECT_EQ(RepetitionsLeft(points_), 6u);
  EXPECT_EQ(Order({1}), (std::vector<size_t>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(RepetitionsLeft(points_), 0u);
}

TEST_F(RepeatingTest, PointsThatDifferAreRepeatedToTheBound) {
  EXPECT_EQ(Order({1, 2, 3}).size(), 2 * kMostRepetitions);
}

TEST_F(RepeatingTest, DroppedPointIsLeftAlone) {
  points_[0].dropped = "queued";
  EXPECT_EQ(Order({1}), (std::vector<size_t>{1, 1, 1}));
}

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
