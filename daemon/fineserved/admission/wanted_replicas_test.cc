#include "daemon/fineserved/admission/wanted_replicas.h"

#include <gtest/gtest.h>

namespace fineserve::admission {
namespace {

constexpr uint32_t kMost = 64;

// A prompt of 500 tokens takes 58 ms, a step 8 ms and 60 µs a sequence.
sched::ModelSpec Model() {
  sched::ModelSpec model;
  model.name = "chat";
  model.slo_ttft = 2'000'000;
  model.chunk_tokens = 2048;
  model.max_batch = 64;
  model.profile = {8000, 100, 60};
  return model;
}

Demand Asks(double rate, double output_tokens = 200) {
  return {60, rate, 500, output_tokens, 1};
}

uint32_t Wanted(double rate, const ReplicaAbility& ability = {},
                const sched::ModelSpec& model = Model()) {
  return WantedReplicas(model, ability, Asks(rate), kMost);
}

TEST(WantedReplicasTest, IdleModelWantsNone) { EXPECT_EQ(Wanted(0), 0u); }

TEST(WantedReplicasTest, OneRequestAMinuteWantsOne) {
  EXPECT_EQ(Wanted(1.0 / 60), 1u);
}

// 32 requests fill their prompts in 1.7 s, and take 2 s for their answers, so
// one replica serves 8.8 requests a second in time.
TEST(WantedReplicasTest, GrowsWithTheRateByWhatOneReplicaDoes) {
  EXPECT_EQ(Wanted(8), 1u);
  EXPECT_EQ(Wanted(11), 2u);
  EXPECT_EQ(Wanted(32), 4u);
  for (double rate = 1; rate < 200; rate *= 1.1) {
    EXPECT_LE(Wanted(rate), Wanted(rate * 1.1)) << rate;
  }
}

TEST(WantedReplicasTest, NeverMoreThanThereMayBe) {
  EXPECT_EQ(WantedReplicas(Model(), {}, Asks(1000), 4), 4u);
}

TEST(WantedReplicasTest, SlowerEnginesAreMore) {
  ReplicaAbility slow;
  slow.prefill_kappa = slow.decode_kappa = 2;
  EXPECT_EQ(Wanted(8, slow), 3u);
}

TEST(WantedReplicasTest, LittleKvLimitsWhatAReplicaRuns) {
  ReplicaAbility little;
  little.kv_tokens = 4 * 700;  // four requests, 2.1 a second
  EXPECT_EQ(Wanted(8, little), 4u);
  little.kv_tokens = 1;  // less than a request takes
  EXPECT_GT(Wanted(8, little), 4u);
}

TEST(WantedReplicasTest, TpotSloLimitsWhatAReplicaRuns) {
  sched::ModelSpec strict = Model();
  strict.slo_tpot = 8'300;  // five sequences keep it
  EXPECT_EQ(Wanted(5, {}, strict), 2u);
  EXPECT_EQ(Wanted(6, {}, strict), 3u);
}

TEST(WantedReplicasTest, SloThatOneRequestMissesCountsTheRateAlone) {
  sched::ModelSpec hopeless = Model();
  hopeless.slo_ttft = 1000;
  EXPECT_EQ(Wanted(8, {}, hopeless), 1u);
}

TEST(WantedReplicasTest, AnswersOfUnknownLengthCountByTheirPrompts) {
  EXPECT_EQ(WantedReplicas(Model(), {}, Asks(30, 0), kMost), 2u);
}

TEST(WantedReplicasTest, GuessedProfileIsWhatIsLearntOfIt) {
  sched::ModelSpec guessed = Model();
  guessed.profile = sched::kGuess;
  ReplicaAbility learnt;
  learnt.prefill_kappa = learnt.decode_kappa = 8;
  EXPECT_EQ(Wanted(32, {}, guessed), 1u);
  EXPECT_GE(Wanted(32, learnt, guessed), 3u);
}

}  // namespace
}  // namespace fineserve::admission
