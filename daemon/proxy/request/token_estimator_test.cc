#include "daemon/proxy/request/token_estimator.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

RequestFacts Text(uint64_t bytes) {
  RequestFacts facts;
  facts.model = "m";
  facts.text_bytes = bytes;
  return facts;
}

TEST(TokenEstimatorTest, ComesToTheEnginesCount) {
  TokenEstimator estimator;
  EXPECT_EQ(estimator.Estimate(Text(4000)), 1000u);
  for (int i = 0; i < 300; ++i) estimator.Learn(Text(4000), 1600);
  EXPECT_NEAR(estimator.Estimate(Text(4000)), 1600, 16);
  RequestFacts other = Text(4000);
  other.model = "other";
  EXPECT_EQ(estimator.Estimate(other), 1000u);
}

TEST(TokenEstimatorTest, TokenIdsAreCountedNotEstimated) {
  TokenEstimator estimator;
  RequestFacts facts = Text(0);
  facts.prompt_tokens = 77;
  EXPECT_EQ(estimator.Estimate(facts), 77u);
  estimator.Learn(facts, 78);  // teaches nothing about text
  EXPECT_EQ(estimator.BytesPerToken("m"), TokenEstimator::kFirstBytesPerToken);
}

TEST(TokenEstimatorTest, ImagesTeachNothingAboutText) {
  TokenEstimator estimator;
  RequestFacts facts = Text(100);
  facts.has_uncounted = true;
  for (int i = 0; i < 100; ++i) estimator.Learn(facts, 1600);
  EXPECT_EQ(estimator.Estimate(Text(4000)), 1000u);
}

// A few prompts of blanks, say.
TEST(TokenEstimatorTest, LongPromptsDoNotDecideAlone) {
  TokenEstimator estimator;
  for (int i = 0; i < 100; ++i) estimator.Learn(Text(40'000), 10'000);
  for (int i = 0; i < 3; ++i) estimator.Learn(Text(4'000'000), 100'000);
  EXPECT_LT(estimator.BytesPerToken("m"), 5.0);
}

TEST(TokenEstimatorTest, NonsenseKeepsItWithinBounds) {
  TokenEstimator estimator;
  EXPECT_EQ(estimator.Estimate(Text(0)), 1u);
  for (int i = 0; i < 1000; ++i) estimator.Learn(Text(1'000'000), 1);
  EXPECT_LE(estimator.BytesPerToken("m"), 16.0);
  for (int i = 0; i < 1000; ++i) estimator.Learn(Text(1), 1'000'000);
  EXPECT_GE(estimator.BytesPerToken("m"), 1.0);
}

}  // namespace
}  // namespace fineserve::proxy
