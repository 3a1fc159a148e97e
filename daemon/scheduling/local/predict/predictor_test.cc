#include "daemon/scheduling/local/predict/predictor.h"

#include <gtest/gtest.h>

#include <random>

namespace fineserve::sched {
namespace {

constexpr Profile kProfile{8000, 100, 50};

Predictor Idle() { return {kProfile, 1000, 0, 0, 1}; }

TEST(PredictorTest, OneStepCostsBaseAndTokens) {
  EXPECT_EQ(Idle()(300), 8000 + 300 * 100);
}

TEST(PredictorTest, WorkBeyondTheChunkTakesAnotherStep) {
  EXPECT_EQ(Idle()(1000), 8000 + 1000 * 100);
  EXPECT_EQ(Idle()(1001), 2 * 8000 + 1001 * 100);
}

TEST(PredictorTest, BacklogGoesFirst) {
  Predictor p = Idle();
  p.backlog_tokens = 900;
  EXPECT_EQ(p(200), 2 * 8000 + 1100 * 100);
}

TEST(PredictorTest, RunningSequencesTakeBudgetAndTime) {
  Predictor p = Idle();
  p.running = 10;
  EXPECT_EQ(p.budget_tokens(), 990u);
  // Two steps, and half of the one under way.
  EXPECT_EQ(p(991), 5 * (8000 + 10 * 50) / 2 + 991 * 100);
  p.running = 4000;
  EXPECT_EQ(p.budget_tokens(), 1u) << "never nothing";
}

// Returns a predictor with 20 ms of reads over the link, for half of the work.
Predictor Reading(double reread = 1) {
  Predictor p = Idle();
  p.profile.peer = {20'000, .5, reread};
  return p;
}

TEST(PredictorTest, StepsAreLongerByWhatTheirWorkDoesNotHideOfPeerReads) {
  // A step of 300 tokens hides 19 of 20 ms; a full step hides all of them.
  EXPECT_EQ(Reading()(300), Idle()(300) + 20'000 - (8000 + 300 * 100) / 2);
  EXPECT_EQ(Reading()(1000), Idle()(1000));
  EXPECT_EQ(Reading()(1300), Idle()(1300) + 1000);
  EXPECT_DOUBLE_EQ(Reading().profile.DecodeUs(2), 8000 + 2 * 50 + 16'000);
}

TEST(PredictorTest, EachRowBlockReadsAgainUpToTheFactor) {
  EXPECT_EQ(Reading(4)(300), Idle()(300) + 3 * 20'000 - 19'000);
  EXPECT_EQ(Reading(2)(300), Idle()(300) + 2 * 20'000 - 19'000);
  EXPECT_EQ(Reading(4)(100), Idle()(100) + 20'000 - 9000);
}

TEST(PredictorTest, KappaScalesAll) {
  Predictor p = Idle();
  p.kappa = 1.5;
  EXPECT_EQ(p(300), (8000 + 300 * 100) * 3 / 2);
}

TEST(PredictorTest, EndlessWorkIsNotNegative) {
  EXPECT_EQ(Idle()(UINT64_MAX / 2), kLongestTtft);
}

TEST(PredictorPropertyTest, MoreTokensNeverTakeLess) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t n) { return random() % (n + 1); };
  for (int round = 0; round < 20'000; ++round) {
    const Predictor p{{static_cast<double>(upto(9000)),
                       static_cast<double>(upto(200)),
                       static_cast<double>(upto(90)),
                       false,
                       {static_cast<double>(upto(1) * upto(90'000)),
                        static_cast<double>(upto(100)) / 100,
                        1 + static_cast<double>(upto(15))}},
                      static_cast<uint32_t>(1 + upto(4000)),
                      static_cast<uint32_t>(upto(300)),
                      upto(9000),
                      0.25 + static_cast<double>(upto(300)) / 100};
    const uint64_t tokens = upto(9000);
    ASSERT_LE(p(tokens), p(tokens + upto(50)));
  }
}

TEST(SloBatchTest, DecodeStepStaysWithinTheSlo) {
  EXPECT_EQ(SloBatch(kProfile, 1, 10'000), 40u);
  EXPECT_EQ(SloBatch(kProfile, 2, 20'000), 40u);
  EXPECT_EQ(SloBatch(kProfile, 1, 9'999), 39u);
}

TEST(SloBatchTest, AnSloThatCannotBeKeptStillServesOne) {
  EXPECT_EQ(SloBatch(kProfile, 1, 5'000), 1u);
}

TEST(SloBatchTest, ReadsFromAPeerLeaveLessForSequences) {
  Profile profile = kProfile;
  profile.peer = {5000, .5, 1};  // of which a decode step hides 4 ms
  EXPECT_EQ(SloBatch(profile, 1, 10'000), 20u);
}

TEST(SloBatchTest, SequencesThatCostNothingAreNotLimited) {
  EXPECT_EQ(SloBatch({8000, 100, 0}, 1, 10'000), UINT32_MAX);
}

TEST(CorrectionTest, FirstMovesAFifthOfTheWay) {
  Correction c;
  c.Observe(3000, 2000);
  EXPECT_DOUBLE_EQ(c.kappa(), 1.1);
}

TEST(CorrectionTest, LongPromptsDecideNotTheWaysOfShortOnes) {
  Correction c;
  for (int i = 0; i < 400; ++i) {
    c.Observe(15, 10);
    c.Observe(1000, 1000);
  }
  EXPECT_NEAR(c.kappa(), 1015.0 / 1010, 0.001);
}

TEST(CorrectionTest, OneStallDoesNotShutTheDoor) {
  Correction c;
  c.Observe(1'000'000'000, 1);
  EXPECT_LE(c.kappa(), 2.5);
}

TEST(CorrectionTest, LearnsASlowdown) {
  Correction c;
  for (int i = 0; i < 20; ++i) c.Observe(1900, 1000);
  EXPECT_GT(c.kappa(), 1.7);
  for (int i = 0; i < 80; ++i) c.Observe(1900, 1000);
  EXPECT_NEAR(c.kappa(), 1.9, 0.01);
  for (int i = 0; i < 20; ++i) c.Observe(1000, 1000);
  EXPECT_LT(c.kappa(), 1.35) << "and forgets it";
}

TEST(CorrectionTest, GuessIsGivenUpWithinAFewFirstTokens) {
  Correction c;
  for (int i = 0; i < 4; ++i) c.Observe(20'000, 1000, /*guessed=*/true);
  EXPECT_NEAR(c.kappa(), 20, 4.1);
  for (int i = 0; i < 60; ++i) c.Observe(20'000, 1000, /*guessed=*/true);
  EXPECT_NEAR(c.kappa(), 20, 0.5);
}

// Within κ's limit for guesses, a prompt of 500 tokens is predicted to take
// half a second.
TEST(CorrectionTest, GuessThatIsWrongByAStallShutsNoDoorEither) {
  Correction c;
  for (int i = 0; i < 100; ++i) c.Observe(1'000'000'000, 1, /*guessed=*/true);
  EXPECT_LE(c.kappa(), 64);
  Predictor p{.profile = kGuess, .chunk_tokens = 2048, .kappa = c.kappa()};
  EXPECT_LE(p(500), 600'000);
}

TEST(CorrectionTest, UnpredictedRequestTeachesNothing) {
  Correction c;
  c.Observe(1000, 0);
  c.Observe(0, 1000);
  EXPECT_EQ(c.kappa(), 1);
}

}  // namespace
}  // namespace fineserve::sched
