#include "daemon/scheduling/local/engine_load.h"

#include <gtest/gtest.h>

#include <string>

#include "daemon/scheduling/local/gemma_fixture.h"

namespace fineserve::sched {
namespace {

// 1,000 µs a step and 10 µs a token; 100 µs for each running sequence.
const ModelSpec kModelSpec{"m", 100'000, 0, 1000, 8, {1000, 10, 100}};

EngineLoad WithKv(uint64_t tokens, uint64_t tail_tokens = 0) {
  EngineLoad load;
  load.SetKv({tokens, tokens, tail_tokens});
  return load;
}

TEST(EngineLoadTest, WithoutKvNoRequestIsTaken) {
  const EngineLoad load = WithKv(0);
  EXPECT_FALSE(load.Takes(kModelSpec, {1, 0, 0}, 0));
  EXPECT_EQ(load.LiveCaps(kModelSpec, 0).requests, 0u);
}

TEST(EngineLoadTest, PromptGrowthAndTailMustFitBesideThoseThatRun) {
  EngineLoad load = WithKv(1000, 100);
  load.Start(RequestId{1}, kModelSpec, {90, 10, 0}, 0);
  EXPECT_EQ(load.held_tokens(), 200u);
  EXPECT_TRUE(load.Takes(kModelSpec, {600, 100, 0}, 0));
  EXPECT_FALSE(load.Takes(kModelSpec, {600, 101, 0}, 0));
}

TEST(EngineLoadTest, EngineThatReadsFromAPeerIsPredictedSoUntilItIsRestored) {
  EngineLoad load;
  KvRoom room{2000, 2000, 0};
  room.peer = {5000, .5, 1};
  load.SetKv(room);
  EXPECT_EQ(load.Predict(kModelSpec, 0)(100), 2000 + 5000 - 1000);
  // κ does not learn the engine's reads as slowness.
  load.Start(RequestId{1}, kModelSpec, {100, 10, 0}, 0);
  load.FirstToken(RequestId{1}, 6000);
  EXPECT_DOUBLE_EQ(load.kappa(), 1);
  load.Finish(RequestId{1});
  room.peer = {};
  load.SetKv(room);
  EXPECT_EQ(load.Predict(kModelSpec, 10'000)(100), 2000);
}

EngineLoad GemmaWith(uint64_t blocks) {
  EngineLoad load;
  const uint64_t tokens = blocks * kGemmaBlock;
  load.SetKv({tokens, tokens, 0, kGemma, kGemmaBlock});
  return load;
}

TEST(EngineLoadTest, ARequestIsTakenWhenTheBlocksOfAllItsGroupsFit) {
  EXPECT_TRUE(GemmaWith(7 * 63).Takes(kModelSpec, {1000, 0, 0}, 0));
  EXPECT_FALSE(GemmaWith(7 * 63 - 1).Takes(kModelSpec, {1000, 0, 0}, 0));
  // 100 tokens more.
  EXPECT_TRUE(GemmaWith(7 * 69).Takes(kModelSpec, {1000, 100, 0}, 0));
  EXPECT_FALSE(GemmaWith(7 * 69 - 1).Takes(kModelSpec, {1000, 100, 0}, 0));
  // Beside another.
  EngineLoad load = GemmaWith(2 * 441);
  load.Start(RequestId{1}, kModelSpec, {1000, 0, 0}, 0);
  EXPECT_TRUE(load.Takes(kModelSpec, {1000, 0, 0}, 0));
  EXPECT_FALSE(load.Takes(kModelSpec, {1009, 0, 0}, 0));
}

TEST(EngineLoadTest, AWindowsBlocksComeBackWhenThePromptIsFilled) {
  EngineLoad load = GemmaWith(10'000);
  load.Start(RequestId{1}, kModelSpec, {100'000, 0, 0}, 0);
  EXPECT_EQ(load.held_tokens(), (6250u + 6 * 193) * kGemmaBlock);
  load.FirstToken(RequestId{1}, 10'000);
  EXPECT_EQ(load.held_tokens(), (6250u + 6 * 65) * kGemmaBlock);
  load.Progress(RequestId{1}, 16, 16);
  EXPECT_EQ(load.held_tokens(), (6252u + 6 * 65) * kGemmaBlock);
  load.Finish(RequestId{1});
  EXPECT_EQ(load.held_tokens(), 0u);
}

TEST(EngineLoadTest, KvIsHeldUntilTheEnd) {
  EngineLoad load = WithKv(1000);
  load.Start(RequestId{1}, kModelSpec, {500, 100, 0}, 0);
  load.FirstToken(RequestId{1}, 10'000);
  EXPECT_EQ(load.held_tokens(), 600u);
  EXPECT_FALSE(load.Takes(kModelSpec, {401, 0, 0}, 20'000));
  load.Finish(RequestId{1});
  EXPECT_EQ(load.held_tokens(), 0u);
  EXPECT_TRUE(load.Takes(kModelSpec, {1000, 0, 0}, 20'000));
}

TEST(EngineLoadTest, ProgressMovesTheGrowthAhead) {
  EngineLoad load = WithKv(10'000);
  load.Start(RequestId{1}, kModelSpec, {500, 100, 0}, 0);
  load.Progress(RequestId{1}, 90, 64);
  EXPECT_EQ(load.held_tokens(), 500u + 90 + 64);
}

TEST(EngineLoadTest, AtMostTwoStepsAreSent) {
  EngineLoad load = WithKv(100'000);
  load.Start(RequestId{1}, kModelSpec, {1500, 0, 0}, 0);
  EXPECT_TRUE(load.Takes(kModelSpec, {500, 0, 0}, 0));
  EXPECT_FALSE(load.Takes(kModelSpec, {501, 0, 0}, 0));
  EXPECT_EQ(load.LiveCaps(kModelSpec, 0).tokens, 500u);
}

TEST(EngineLoadTest, LongPromptIsTakenByAnEngineThatFillsNothing) {
  EngineLoad load = WithKv(100'000);
  EXPECT_TRUE(load.Takes(kModelSpec, {50'000, 0, 0}, 0));
  load.Start(RequestId{1}, kModelSpec, {1, 0, 0}, 0);
  EXPECT_FALSE(load.Takes(kModelSpec, {50'000, 0, 0}, 0));
  load.FirstToken(RequestId{1}, 1100);
  EXPECT_TRUE(load.Takes(kModelSpec, {50'000, 0, 0}, 1100));
}

TEST(EngineLoadTest, BatchIsFullAtItsMost) {
  EngineLoad load = WithKv(100'000);
  for (uint64_t id = 1; id <= 8; ++id) {
    ASSERT_TRUE(load.Takes(kModelSpec, {1, 0, 0}, 0)) << id;
    load.Start(RequestId{id}, kModelSpec, {1, 0, 0}, 0);
  }
  EXPECT_FALSE(load.Takes(kModelSpec, {1, 0, 0}, 0));
}

TEST(EngineLoadTest, StrictestTpotOfThoseRunningLimitsTheBatch) {
  EngineLoad load = WithKv(100'000);
  // Five sequences: 1,000 + 5 · 100 µs.
  load.Start(RequestId{1}, kModelSpec, {1, 0, 1500}, 0);
  for (uint64_t id = 2; id <= 5; ++id) {
    EXPECT_TRUE(load.Takes(kModelSpec, {1, 0, 9000}, 0)) << id;
    load.Start(RequestId{id}, kModelSpec, {1, 0, 9000}, 0);
  }
  EXPECT_FALSE(load.Takes(kModelSpec, {1, 0, 9000}, 0));
  load.Finish(RequestId{1});
  EXPECT_TRUE(load.Takes(kModelSpec, {1, 0, 9000}, 0));
}

TEST(EngineLoadTest, SlowFirstTokensRaiseKappaOnce) {
  EngineLoad load = WithKv(100'000);
  load.Start(RequestId{1}, kModelSpec, {100, 0, 0}, 0);
  EXPECT_TRUE(load.FirstToken(RequestId{1}, 4000));  // 2,000 were predicted
  EXPECT_DOUBLE_EQ(load.kappa(), 1.2);
  EXPECT_FALSE(load.FirstToken(RequestId{1}, 90'000));
  EXPECT_DOUBLE_EQ(load.kappa(), 1.2);
}

ModelSpec WithTpot(Micros slo) {
  ModelSpec spec = kModelSpec;
  spec.slo_tpot = slo;
  return spec;
}

// Streams an answer of 101 tokens whose prompt and steps take the given times.
Micros Stream(EngineLoad* load, const ModelSpec& spec, Micros now, Micros ttft,
              Micros tpot) {
  load->Start(RequestId{99}, spec, {100, 0, 0}, now);
  load->FirstToken(RequestId{99}, now + ttft);
  const Micros end = now + ttft + 100 * tpot;
  EXPECT_FALSE(load->CameWhole(RequestId{99}, spec, 101, end).has_value());
  load->Finish(RequestId{99});
  return end;
}

TEST(EngineLoadTest, SlowFirstTokensLeaveTheBatchAsItIs) {
  const ModelSpec spec = WithTpot(1700);  // seven sequences
  EngineLoad load = WithKv(100'000);
  Micros now = 0;
  for (int i = 0; i < 20; ++i) now = Stream(&load, spec, now, 16'000, 1100);
  EXPECT_GT(load.kappa(), 4);
  EXPECT_EQ(load.LiveCaps(spec, now).requests, 7u);
}

TEST(EngineLoadTest, SlowTokensMakeTheBatchSmaller) {
  const ModelSpec spec = WithTpot(2000);
  EngineLoad load = WithKv(100'000);
  EXPECT_EQ(load.LiveCaps(spec, 0).requests, 8u);
  Micros now = 0;
  for (int i = 0; i < 50; ++i) now = Stream(&load, spec, now, 2000, 1650);
  EXPECT_NEAR(load.kappa(), 1, 0.001);
  EXPECT_NEAR(load.learnt().decode.kappa(), 1.5, 0.03);
  EXPECT_EQ(load.LiveCaps(spec, now).requests, 3u);
  for (int i = 0; i < 50; ++i) now = Stream(&load, spec, now, 2000, 8000);
  EXPECT_EQ(load.LiveCaps(spec, now).requests, 1u) << "one is always served";
}

TEST(EngineLoadTest, TokensAreComparedWithThoseThatRanBeside) {
  EngineLoad load = WithKv(100'000);
  for (uint64_t id = 1; id <= 4; ++id) {
    load.Start(RequestId{id}, kModelSpec, {1, 0, 0}, 0);
  }
  for (uint64_t id = 1; id <= 4; ++id) load.FirstToken(RequestId{id}, 1000);
  // 1,400 µs a step, then three leave.
  for (uint64_t id = 1; id <= 4; ++id) {
    load.CameWhole(RequestId{id}, kModelSpec, 101, 141'000);
    load.Finish(RequestId{id});
  }
  EXPECT_NEAR(load.learnt().decode.kappa(), 1, 0.001);
}

TEST(EngineLoadTest, ClientsTpotLeavesALeastBatchWhateverIsLearnt) {
  EngineLoad load = WithKv(100'000);
  load.Start(RequestId{1}, kModelSpec, {1, 0, 1}, 0);
  EXPECT_EQ(load.LiveCaps(WithTpot(0), 0).requests, 3u);
  Micros now = 0;
  for (int i = 0; i < 50; ++i) now = Stream(&load, kModelSpec, now, 2000, 9000);
  EXPECT_EQ(load.LiveCaps(kModelSpec, now).requests, 3u);
  ModelSpec large = kModelSpec;
  large.max_batch = 256;
  EXPECT_EQ(load.LiveCaps(large, now).requests, 31u);
}

// 2,000 µs until the first token and 50 steps of 1,100 µs are predicted.
TEST(EngineLoadTest, WholeAnswersTeachBothInProportion) {
  EngineLoad load = WithKv(100'000);
  Micros now = 0;
  for (int i = 0; i < 50; ++i) {
    load.Start(RequestId{1}, kModelSpec, {100, 0, 0}, now);
    const absl::optional<Micros> first =
        load.CameWhole(RequestId{1}, kModelSpec, 51, now + 3 * 57'000);
    ASSERT_TRUE(first.has_value());
    EXPECT_NEAR(*first - now, 3 * 2000, 1);
    load.Finish(RequestId{1});
    now += 1'000'000;
  }
  EXPECT_NEAR(load.kappa(), 3, 0.1);
  EXPECT_NEAR(load.learnt().decode.kappa(), 3, 0.1);
}

// Answers of one token and of many tokens show whether prompts or steps are
// slow.
TEST(EngineLoadTest, WholeAnswersOfSeveralLengthsTellPromptsFromSteps) {
  EngineLoad load = WithKv(100'000);
  Micros now = 0;
  for (int i = 0; i < 400; ++i) {
    const uint32_t tokens = i % 2 == 0 ? 1 : 51;
    load.Start(RequestId{1}, kModelSpec, {100, 0, 0}, now);
    now += 2000 + Micros{tokens - 1} * 3300;
    load.CameWhole(RequestId{1}, kModelSpec, tokens, now);
    load.Finish(RequestId{1});
  }
  EXPECT_NEAR(load.kappa(), 1, 0.15);
  EXPECT_NEAR(load.learnt().decode.kappa(), 3, 0.15);
}

TEST(EngineLoadTest, AdoptedRequestTeachesNothing) {
  EngineLoad load = WithKv(100'000);
  load.Adopt(RequestId{1}, {100, 0, 0});
  EXPECT_FALSE(load.CameWhole(RequestId{1}, kModelSpec, 51, 9'000'000));
  EXPECT_EQ(load.kappa(), 1);
  EXPECT_EQ(load.learnt().decode.kappa(), 1);
}

TEST(EngineLoadTest, PredictionCountsThoseSentBefore) {
  EngineLoad load = WithKv(100'000);
  load.Start(RequestId{1}, kModelSpec, {400, 0, 0}, 0);
  constexpr Micros kFixed = 1000 + 100;  // half of one is under way
  EXPECT_EQ(load.Predict(kModelSpec, 0)(100), kFixed / 2 + kFixed + 500 * 10);
}

struct GrowthCase {
  std::string name;
  uint32_t expected, generated, most, growth;
};
class GrowthTest : public ::testing::TestWithParam<GrowthCase> {};

TEST_P(GrowthTest, IsAsExpected) {
  const GrowthCase& c = GetParam();
  EXPECT_EQ(GrowthTokens(c.expected, c.generated, c.most), c.growth);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GrowthTest,
    ::testing::Values(GrowthCase{"WhatIsExpected", 256, 0, 0, 256},
                      GrowthCase{"WhatIsLeftOfIt", 256, 200, 0, 56},
                      GrowthCase{"NoMoreThanItMay", 256, 0, 10, 10},
                      GrowthCase{"NoMoreThanItStillMay", 256, 8, 10, 2},
                      GrowthCase{"NoFurtherThanTheHorizon", 4000, 0, 0, 512},
                      GrowthCase{"WhoOutgrewTheAverageGoesOn", 256, 300, 0, 64},
                      GrowthCase{"WhoIsPastItsMostIsDone", 256, 300, 10, 0}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace fineserve::sched
