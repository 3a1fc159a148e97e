#include "daemon/proxy/admission/liveness.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

using Health = Liveness::Health;

void Miss(Liveness* engine, uint32_t times, bool progressed = false) {
  for (uint32_t i = 0; i < times; ++i) {
    engine->Missed(Health::kDoesNot, progressed);
  }
}

TEST(LivenessTest, EngineThatServedMayMissAFewProbes) {
  Liveness engine;
  engine.Answered(Health::kServes);
  Miss(&engine, Liveness::kMost - 1);
  EXPECT_EQ(engine.health(), Health::kServes);
  Miss(&engine, 1);
  EXPECT_EQ(engine.health(), Health::kDoesNot);
  engine.Answered(Health::kServes);
  EXPECT_EQ(engine.health(), Health::kServes);
  EXPECT_EQ(engine.misses(), 0u);
}

TEST(LivenessTest, ProgressMakesUpForMisses) {
  Liveness engine;
  engine.Answered(Health::kServes);
  Miss(&engine, 10 * Liveness::kMost, /*progressed=*/true);
  EXPECT_EQ(engine.health(), Health::kServes);
  EXPECT_EQ(engine.misses(), 0u);
}

TEST(LivenessTest, OneThatHasNotServedYetDoesNot) {
  Liveness engine;
  engine.Missed(Health::kUnreachable, false);
  EXPECT_EQ(engine.health(), Health::kUnreachable);
  engine.Missed(Health::kDoesNot, false);
  EXPECT_EQ(engine.health(), Health::kDoesNot);
}

TEST(LivenessTest, AnswerCountsAtOnce) {
  Liveness engine;
  engine.Answered(Health::kServes);
  engine.Answered(Health::kDoesNot);
  EXPECT_EQ(engine.health(), Health::kDoesNot);
}

}  // namespace
}  // namespace fineserve::proxy
