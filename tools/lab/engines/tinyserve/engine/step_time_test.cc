#include "tools/lab/engines/tinyserve/engine/step_time.h"

#include <gtest/gtest.h>

namespace tinyserve {
namespace {

using std::chrono::microseconds;

Sequence At(uint32_t prompt, uint32_t tokens, uint32_t computed) {
  Sequence sequence;
  sequence.prompt_tokens = prompt;
  sequence.tokens.resize(tokens);
  sequence.computed = computed;
  return sequence;
}

TEST(StepTimeTest, PromptTokensAndDecodedSequencesCost) {
  const StepCost cost = {
      .base_us = 1000, .per_token_us = 10, .per_sequence_us = 3, .speed = 1};
  Sequence prefills = At(100, 100, 20);
  Sequence decodes = At(5, 6, 5);
  EXPECT_EQ(cost.Of({}), microseconds(1000));
  EXPECT_EQ(cost.Of({{&prefills, 50}}), microseconds(1500));
  EXPECT_EQ(cost.Of({{&decodes, 1}}), microseconds(1003));
  EXPECT_EQ(cost.Of({{&prefills, 50}, {&decodes, 1}}), microseconds(1503));
}

TEST(StepTimeTest, PromptOfOneTokenIsNoDecode) {
  const StepCost cost = {
      .base_us = 0, .per_token_us = 10, .per_sequence_us = 3, .speed = 1};
  Sequence one = At(1, 1, 0);
  EXPECT_EQ(cost.Of({{&one, 1}}), microseconds(10));
}

TEST(StepTimeTest, SpeedDivides) {
  StepCost cost;
  const auto real = cost.Of({});
  cost.speed = 10;
  EXPECT_EQ(cost.Of({}), real / 10);
}

TEST(StepTimeTest, LateWakeUpsDoNotAddUp) {
  StepPacer pacer;
  const Time start = Time(microseconds(1'000'000));
  Time now = start;
  for (int step = 1; step <= 100; ++step) {
    const Time end = pacer.End(now, microseconds(500));
    EXPECT_EQ(end, start + step * microseconds(500));
    EXPECT_EQ(pacer.Late(now + microseconds(300)).count(), 0);
    now = end + microseconds(60);
  }
}

TEST(StepTimeTest, WorkThatTookLongerPutsTheScheduleOff) {
  StepPacer pacer;
  const Time start = Time(microseconds(1'000'000));
  pacer.End(start, microseconds(500));
  const Time done = start + microseconds(700);
  EXPECT_EQ(pacer.Late(done), microseconds(200));
  EXPECT_EQ(pacer.End(done + microseconds(5), microseconds(500)),
            done + microseconds(500));
}

TEST(StepTimeTest, AfterARestAStepBeginsWhenItBegins) {
  StepPacer pacer;
  const Time start = Time(microseconds(1'000'000));
  pacer.End(start, microseconds(500));
  pacer.Rest();
  const Time later = start + microseconds(90'000);
  EXPECT_EQ(pacer.End(later, microseconds(500)), later + microseconds(500));
}

}  // namespace
}  // namespace tinyserve
