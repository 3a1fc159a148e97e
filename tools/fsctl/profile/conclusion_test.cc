#include "tools/fsctl/profile/conclusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/scheduling/local/predict/profile_fit.h"

namespace fineserve::fsctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kBaseUs = 7600, kPerTokenUs = 16, kPerSequenceUs = 64;

// Returns three samples of each point for an engine that fills prompts in
// chunks of `chunk`; the second sample was disturbed.
std::vector<PointSamples> Measured(uint32_t chunk) {
  std::vector<PointSamples> points;
  for (const PlannedPoint& p : PlanPoints({1, 8, 32}, {64, 1024})) {
    const auto filled = sched::BatchSteps(p.batch, p.prompt_tokens, chunk);
    const double ttft_us = kBaseUs * filled.steps +
                           kPerTokenUs * p.batch * p.prompt_tokens +
                           kPerSequenceUs * static_cast<double>(filled.decoded);
    const double step_us = kBaseUs + kPerSequenceUs * p.batch;
    const auto tokens = static_cast<double>(p.prompt_tokens);
    const Sample good = {ttft_us / 1e6, step_us / 1e6, tokens};
    const Sample late = {3 * ttft_us / 1e6, 2 * step_us / 1e6, tokens};
    points.push_back({p, {good, late, good}, ""});
  }
  return points;
}

void ExpectTheEngine(const config::MeasuredProfile& p) {
  EXPECT_NEAR(p.step.base_us, kBaseUs, 0.1);
  EXPECT_NEAR(p.step.per_token_us, kPerTokenUs, 1e-3);
  EXPECT_NEAR(p.step.per_sequence_us, kPerSequenceUs, 1e-3);
  EXPECT_NEAR(p.decode_base_us, kBaseUs, 0.1);
  EXPECT_LT(p.quality.prefill_error, 1e-6);
}

TEST(ConclusionTest, FindsTheEngineBehindDisturbedSamples) {
  const auto c = Conclude(Measured(2048), 0);
  ASSERT_TRUE(c.ok()) << c.status();
  ExpectTheEngine(c->profile);
  EXPECT_EQ(c->profile.chunk_tokens, 2048u);
  EXPECT_TRUE(c->chunk_found);
  EXPECT_EQ(c->profile.points.size(), 6u);
  EXPECT_EQ(c->profile.points[0].repetitions, 3u);
  EXPECT_THAT(c->warnings, IsEmpty());
}

TEST(ConclusionTest, FindsChunksOfAnotherSize) {
  for (const uint32_t chunk : {512u, 8192u}) {
    const auto c = Conclude(Measured(chunk), 0);
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(c->profile.chunk_tokens, chunk);
    ExpectTheEngine(c->profile);
  }
}

TEST(ConclusionTest, ChunksThatAreGivenAreNotDoubted) {
  const auto c = Conclude(Measured(512), 4096);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->profile.chunk_tokens, 4096u);
  EXPECT_FALSE(c->chunk_found);
  EXPECT_GT(c->profile.quality.prefill_error, 0.05);
}

TEST(ConclusionTest, FormThatErrsIsWarnedOf) {
  auto points = Measured(2048);
  for (PointSamples& p : points) {
    const double n = p.point.batch;
    for (Sample& s : p.samples) s.step_s *= n * n;
  }
  const auto c = Conclude(points, 0);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_THAT(c->warnings, Contains(HasSubstr("more than 15 %")));
}

TEST(ConclusionTest, RepetitionsThatDifferAreWarnedOf) {
  auto points = Measured(2048);
  points[0].samples[2].ttft_s *= 1.5;
  const auto c = Conclude(points, 0);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_THAT(c->warnings, Contains(HasSubstr("repetitions differ")));
}

TEST(ConclusionTest, DroppedPointsAreLeftOutAndSaid) {
  auto points = Measured(2048);
  points.back().samples.clear();
  points.back().dropped = "queued";
  const auto c = Conclude(points, 0);
  ASSERT_TRUE(c.ok()) << c.status();
  ExpectTheEngine(c->profile);
  EXPECT_EQ(c->profile.points.size(), 5u);
  EXPECT_THAT(c->warnings,
              Contains(HasSubstr("left out batch 32, 1024 tokens: queued")));
}

TEST(ConclusionTest, TooLittleIsAnErrorWithTheFix) {
  auto points = Measured(2048);
  points.resize(1);
  for (const auto& few : {points, std::vector<PointSamples>()}) {
    const auto c = Conclude(few, 0);
    EXPECT_THAT(std::string(c.status().message()),
                HasSubstr("give more time with --budget"));
  }
}

}  // namespace
}  // namespace fineserve::fsctl
