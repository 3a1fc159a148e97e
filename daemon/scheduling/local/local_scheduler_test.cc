#include "daemon/scheduling/local/local_scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/scheduling/local/policy/make_policy.h"

namespace fineserve::sched {
namespace {

constexpr ModelId kModel{0};
constexpr ReplicaId kEngine{1};
constexpr Micros kSlo = 100'000;

// 1,000 µs a step and 10 µs a token.
ModelSpec Spec() { return {"m", kSlo, 0, 1000, 8, {1000, 10, 0}}; }

std::unique_ptr<Policy> Paper() {
  return std::move(*MakePolicy("fineserve", kDefaultFloorShare));
}

class LocalSchedulerTest : public ::testing::Test {
 protected:
  LocalSchedulerTest() : sched_({Spec(), Spec()}, Paper()) { Kv(100'000); }

  void Kv(uint64_t tokens) {
    ASSERT_TRUE(sched_.SetEngine(kEngine, kModel, {tokens, 100'000, 0}).ok());
  }
  Submission Ask(uint64_t id, uint32_t tokens, Micros arrival = 0) {
    Submission s;
    s.id = RequestId{id};
    s.prompt_tokens = tokens;
    s.max_tokens = 10;
    s.arrival = arrival;
    return s;
  }
  void Submit(const Submission& s) { ASSERT_TRUE(sched_.Submit(s).ok()); }
  // Returns the decision on the only request, which must be decided now.
  Decision Only(Micros now) {
    const auto decisions = sched_.Decide(now);
    EXPECT_EQ(decisions.size(), 1u);
    return decisions.size() == 1 ? decisions[0] : Decision{};
  }

  uint64_t Held() { return sched_.Engines(0).at(kEngine).held_tokens; }

  LocalScheduler sched_;
};

TEST_F(LocalSchedulerTest, RequestThatFitsStartsAtOnce) {
  Submit(Ask(1, 500));
  const Decision d = Only(10);
  EXPECT_EQ(d.engine, kEngine);
  EXPECT_FALSE(d.degraded);
  EXPECT_EQ(d.predicted_ttft, 10 + 1000 + 500 * 10);
  EXPECT_TRUE(sched_.Decide(20).empty()) << "decided once";
  EXPECT_EQ(sched_.Figures(kModel).admitted, 1u);
  EXPECT_EQ(sched_.Figures(kModel).queued, 0u);
}

TEST_F(LocalSchedulerTest, RequestThatFailedOnAnEngineStartsOnAnother) {
  constexpr ReplicaId kOther{7};
  Submission again = Ask(1, 500);
  again.avoid = kEngine;
  Submit(again);
  EXPECT_EQ(Only(0).engine, kEngine) << "there is no other";
  sched_.Finished(RequestId{1}, 0);
  ASSERT_TRUE(sched_.SetEngine(kOther, kModel, {100'000, 100'000, 0}).ok());
  Submit(again);
  EXPECT_EQ(Only(0).engine, kOther);
  EXPECT_EQ(Held(), 0u) << "nothing is booked where it does not run";
  KvRoom closed = {100'000, 100'000, 0};
  closed.closed = true;
  ASSERT_TRUE(sched_.SetEngine(kOther, kModel, closed).ok());
  again.id = RequestId{2};
  Submit(again);
  EXPECT_EQ(Only(0).engine, kEngine);
}

TEST_F(LocalSchedulerTest, RequestThatCannotMakeItLearnsWhenToComeBack) {
  Submission s = Ask(1, 500);
  s.slo_ttft_us = 3000;
  Submit(Ask(2, 800));
  Submit(s);
  const auto decisions = sched_.Decide(0);
  ASSERT_EQ(decisions.size(), 2u);
  const Decision& d = decisions[0];
  EXPECT_EQ(d.id, RequestId{1});
  EXPECT_FALSE(d.engine);
  EXPECT_EQ(d.refusal, Refusal::kDeadline);
  EXPECT_EQ(d.predicted_ttft, 1000 + 500 * 10);
  EXPECT_EQ(d.retry_after, 1000 + 800 * 10) << "what waits besides";
}

TEST_F(LocalSchedulerTest, ModelWithoutEngineIsRefused) {
  Submission s = Ask(1, 500);
  s.model = ModelId{1};
  Submit(s);
  EXPECT_EQ(sched_.NextWake(0), 0) << "there is news";
  EXPECT_EQ(Only(0).refusal, Refusal::kNoEngine);
  EXPECT_EQ(sched_.NextWake(0), kNever);
}

TEST_F(LocalSchedulerTest, PromptThatNoEngineCanHoldIsRefused) {
  Submit(Ask(1, 100'000));
  EXPECT_EQ(Only(0).refusal, Refusal::kTooLong);
}

TEST_F(LocalSchedulerTest, NoneStartsWithoutKvAndAllOnceItIsThere) {
  Kv(0);
  Submit(Ask(1, 500));
  EXPECT_TRUE(sched_.Decide(0).empty());
  Kv(1000);
  EXPECT_EQ(Only(10).engine, kEngine);
}

TEST_F(LocalSchedulerTest, RequestDecidedAtOnceWaitedForNothing) {
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).waited_for, WaitedFor::kNothing);
  Submission late = Ask(2, 500);
  late.slo_ttft_us = 1;
  Submit(late);
  EXPECT_EQ(Only(0).waited_for, WaitedFor::kNothing);
}

TEST_F(LocalSchedulerTest, RequestThatWaitedForKvOrAnEngineSaysSo) {
  for (const bool closed : {false, true}) {
    KvRoom room = {0, 100'000, 0};
    room.closed = closed;
    ASSERT_TRUE(sched_.SetEngine(kEngine, kModel, room).ok());
    Submit(Ask(1, 500));
    EXPECT_TRUE(sched_.Decide(0).empty());
    Kv(100'000);
    EXPECT_EQ(Only(10).waited_for,
              closed ? WaitedFor::kEngine : WaitedFor::kKv);
    sched_.Finished(RequestId{1}, 1);
  }
}

TEST_F(LocalSchedulerTest, RequestThatWaitedForAPlaceOrForPromptsSaysSo) {
  Submit(Ask(1, 1900));
  EXPECT_EQ(Only(0).waited_for, WaitedFor::kNothing);
  Submit(Ask(2, 500));
  EXPECT_TRUE(sched_.Decide(0).empty()) << "two steps are full";
  sched_.FirstToken(RequestId{1}, 20'000);
  EXPECT_EQ(Only(20'000).waited_for, WaitedFor::kPrefill);
  for (uint64_t id = 3; id <= 8; ++id) {
    Submit(Ask(id, 1));
    EXPECT_TRUE(Only(20'000).engine) << id;
  }
  Submit(Ask(9, 1));
  EXPECT_TRUE(sched_.Decide(20'000).empty()) << "eight run";
  sched_.Finished(RequestId{8}, 1);
  EXPECT_EQ(Only(20'001).waited_for, WaitedFor::kBatch);
}

TEST_F(LocalSchedulerTest, RequestThatWasNeverConsideredWaitedForItsTurn) {
  Kv(600);
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).id, RequestId{1});
  Submit(Ask(2, 100, 1));
  Submit(Ask(3, 100, 2));
  EXPECT_TRUE(sched_.Decide(10).empty());
  sched_.Finished(RequestId{1}, 10);
  const auto decisions = sched_.Decide(20);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].id, RequestId{2});
  EXPECT_EQ(decisions[0].waited_for, WaitedFor::kKv);
  EXPECT_EQ(decisions[1].waited_for, WaitedFor::kTurn);
}

TEST_F(LocalSchedulerTest, KvOfTheFinishedServesTheNext) {
  Kv(600);
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).id, RequestId{1});
  Submit(Ask(2, 500));
  EXPECT_TRUE(sched_.Decide(10'000).empty());
  sched_.Finished(RequestId{1}, 10);
  EXPECT_EQ(Only(20'000).id, RequestId{2});
}

TEST_F(LocalSchedulerTest, AnswerThatOutgrowsItsExpectationKeepsItsKv) {
  Kv(1000);
  Submission s = Ask(1, 500);
  s.max_tokens = 0;
  Submit(s);
  EXPECT_EQ(Only(0).engine, kEngine);
  EXPECT_EQ(Held(), 500u + 256) << "what is expected at first";
  sched_.Progress(RequestId{1}, 300);
  EXPECT_EQ(Held(), 500u + 300 + 64) << "it goes on for a while";
  Submit(Ask(2, 200));
  EXPECT_TRUE(sched_.Decide(10'000).empty()) << "its KV is in use";
  sched_.Finished(RequestId{1}, 320);
  EXPECT_EQ(Only(20'000).id, RequestId{2});
}

TEST_F(LocalSchedulerTest, BookingEndsAtWhatARequestMayOrItsEngineCan) {
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).engine, kEngine);
  sched_.Progress(RequestId{1}, UINT32_MAX);
  EXPECT_EQ(Held(), 500u + 10);
  sched_.Finished(RequestId{1}, 10);
  EXPECT_EQ(Held(), 0u);
  ASSERT_TRUE(sched_.SetEngine(kEngine, kModel, {600, 600, 20}).ok());
  Submission s = Ask(2, 500);
  s.max_tokens = 0;
  Submit(s);
  EXPECT_EQ(Only(20'000).engine, kEngine);
  sched_.Progress(RequestId{2}, 50);
  EXPECT_EQ(Held(), 600u) << "with its tail";
}

TEST_F(LocalSchedulerTest, WaitingOneIsRefusedAsLateWithoutAnEvent) {
  Kv(0);
  Submit(Ask(1, 500));
  EXPECT_TRUE(sched_.Decide(0).empty());
  const Micros late = kSlo - 1000 - 500 * 10;
  EXPECT_EQ(sched_.NextWake(0), late);
  EXPECT_EQ(Only(late).refusal, Refusal::kDeadline);
}

TEST_F(LocalSchedulerTest, DecisionsThatAStepLeavesOverAreSentAfterIt) {
  Submit(Ask(1, 2000));
  Submit(Ask(2, 2000));
  EXPECT_EQ(Only(0).id, RequestId{1});
  const Micros wake = sched_.NextWake(0);
  EXPECT_LE(wake, 1000 + 1000 * 10 + 1);
  EXPECT_TRUE(sched_.Decide(wake).empty()) << "half of it still waits";
  sched_.FirstToken(RequestId{1}, 22'000);
  EXPECT_EQ(Only(22'000).id, RequestId{2});
}

TEST_F(LocalSchedulerTest, CancelledWhileItWaitsGetsNoDecision) {
  Kv(0);
  Submit(Ask(1, 500));
  sched_.Cancel(RequestId{1});
  EXPECT_TRUE(sched_.Decide(10 * kSlo).empty());
  EXPECT_EQ(sched_.Figures(kModel).queued, 0u);
  EXPECT_EQ(sched_.Figures(kModel).cancelled, 1u);
}

// A smaller batch keeps a client's TPOT, and all other clients pay for it.
TEST_F(LocalSchedulerTest, ClientsTpotDoesNotTakeAnEngineForItself) {
  ModelSpec spec = Spec();
  spec.max_batch = 16;
  spec.profile.per_sequence_us = 100;
  for (const Micros of_model : {Micros{0}, Micros{1300}}) {
    spec.slo_tpot = of_model;
    LocalScheduler sched({spec}, Paper());
    ASSERT_TRUE(sched.SetEngine(kEngine, kModel, {10'000, 10'000, 0}).ok());
    for (uint64_t id = 1; id <= 8; ++id) {
      Submission s = Ask(id, 10);
      s.slo_tpot_us = id == 1 ? 1 : 0;
      ASSERT_TRUE(sched.Submit(s).ok());
      sched.Decide(static_cast<Micros>(id));
    }
    // The engine runs the smallest batch or, by the model's own SLO, 3
    // sequences.
    EXPECT_EQ(sched.Engines(9).at(kEngine).running, of_model == 0 ? 4u : 3u);
  }
}

TEST_F(LocalSchedulerTest, CancelledRefusalIsNotReported) {
  Submit(Ask(1, 100'000));
  sched_.Cancel(RequestId{1});
  EXPECT_TRUE(sched_.Decide(0).empty());
}

TEST_F(LocalSchedulerTest, CancelWhileRunningGivesBackItsKv) {
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).engine, kEngine);
  sched_.Cancel(RequestId{1});
  EXPECT_EQ(sched_.Engines(0).at(kEngine).held_tokens, 0u);
  EXPECT_EQ(sched_.Engines(0).at(kEngine).running, 0u);
}

TEST_F(LocalSchedulerTest, DeadEngineTakesItsRequestsAlong) {
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).engine, kEngine);
  sched_.EngineGone(kEngine);
  sched_.Finished(RequestId{1}, 10);  // from the proxy, later
  sched_.FirstToken(RequestId{1}, 10);
  EXPECT_TRUE(sched_.Requests().empty());
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).refusal, Refusal::kNoEngine);
}

TEST_F(LocalSchedulerTest, RequestForADeadEngineIsRefusedAtItsDeadline) {
  Kv(0);
  Submit(Ask(1, 500));
  sched_.EngineGone(kEngine);
  EXPECT_TRUE(sched_.Decide(kSlo - 1).empty());
  EXPECT_EQ(Only(kSlo).refusal, Refusal::kNoEngine);
}

TEST_F(LocalSchedulerTest, LateOneThatMayBeDegradedIsServedWhenNoneWaits) {
  Kv(600);
  Submission late = Ask(1, 500);
  late.slo_ttft_us = 100;
  late.degrade_ok = true;
  Submit(late);
  Submit(Ask(2, 500));
  EXPECT_EQ(Only(0).id, RequestId{2});
  EXPECT_EQ(sched_.Figures(kModel).degraded, 1u);
  EXPECT_TRUE(sched_.Decide(50'000).empty()) << "no room";
  sched_.Finished(RequestId{2}, 10);
  const Decision d = Only(60'000);
  EXPECT_EQ(d.id, RequestId{1});
  EXPECT_TRUE(d.degraded);
  sched_.FirstToken(RequestId{1}, 70'000);
  EXPECT_EQ(sched_.Figures(kModel).late, 1u) << "still a miss";
  EXPECT_EQ(sched_.Figures(kModel).queued, 0u);
}

// Other requests never stop coming and keep the engine's one place.
TEST_F(LocalSchedulerTest, DegradedOneGetsAnAgeingShare) {
  ModelSpec one = Spec();
  one.max_batch = 1;
  LocalScheduler sched({one}, Paper());
  ASSERT_TRUE(sched.SetEngine(kEngine, kModel, {100'000, 100'000, 0}).ok());
  Submission late = Ask(1, 500);
  late.slo_ttft_us = 1;
  late.degrade_ok = true;
  ASSERT_TRUE(sched.Submit(late).ok());
  ASSERT_TRUE(sched.Submit(Ask(2, 100)).ok());
  ASSERT_EQ(sched.Decide(10).size(), 1u);
  uint64_t last = 2;
  Micros now = 10;
  RequestId runs{2};
  uint32_t passed = 1;
  for (; runs != RequestId{1} && passed < 100; ++passed) {
    ASSERT_TRUE(sched.Submit(Ask(++last, 100, now)).ok());
    sched.FirstToken(runs, now += 2000);
    sched.Finished(runs, 5);
    const auto decisions = sched.Decide(now);
    ASSERT_EQ(decisions.size(), 1u);
    runs = decisions[0].id;
  }
  EXPECT_EQ(passed - 1, LocalScheduler::kMostPassed);
  EXPECT_EQ(sched.Figures(kModel).admitted_degraded, 1u);
}

TEST_F(LocalSchedulerTest, AnOpeningTellsWhatIsLackedAndForHowLong) {
  ModelSpec spec = Spec();
  spec.max_batch = 2;
  LocalScheduler sched({spec}, Paper());
  EXPECT_EQ(sched.NextOpening(kModel, 0).lacks, WaitedFor::kEngine);
  EXPECT_EQ(sched.NextOpening(kModel, 0).in, kNever);
  ASSERT_TRUE(sched.SetEngine(kEngine, kModel, {100'000, 100'000, 0}).ok());
  EXPECT_EQ(sched.NextOpening(kModel, 0).lacks, WaitedFor::kNothing);
  EXPECT_EQ(sched.NextOpening(kModel, 0).in, 0);
  for (const uint64_t id : {1, 2, 3}) {
    Submission s = Ask(id, 100);
    s.max_tokens = static_cast<uint32_t>(50 * id);
    ASSERT_TRUE(sched.Submit(s).ok());
  }
  ASSERT_EQ(sched.Decide(0).size(), 2u) << "the batch";
  for (const uint64_t id : {1, 2}) sched.FirstToken(RequestId{id}, 3000);
  // In 50 steps of 1,000 µs the first ends.
  const auto third = sched.OpeningFor(RequestId{3}, 3000);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->lacks, WaitedFor::kBatch);
  EXPECT_NEAR(static_cast<double>(third->in), 50'000, 3000);
  EXPECT_FALSE(sched.OpeningFor(RequestId{1}, 3000)) << "it runs";
  // A request that comes now waits for the second end as well.
  EXPECT_NEAR(static_cast<double>(sched.NextOpening(kModel, 3000).in), 100'000,
              5000);
}

TEST_F(LocalSchedulerTest, RefusalCountsWhereItWasAskedFirst) {
  for (const uint64_t id : {1, 2}) {
    Submission s = Ask(id, 500);
    s.slo_ttft_us = 1;
    s.asked_before = id == 2;
    Submit(s);
  }
  EXPECT_EQ(sched_.Decide(10).size(), 2u);
  const auto rejected = sched_.Figures(kModel).rejected;
  EXPECT_EQ(rejected[Index(Refusal::kDeadline)], 1u);
}

TEST_F(LocalSchedulerTest, WithdrawnIsAsIfItHadNeverCome) {
  Submit(Ask(1, 500));
  ASSERT_EQ(Only(0).engine, kEngine);
  Submit(Ask(2, 500));
  sched_.Withdraw(RequestId{1});
  sched_.Withdraw(RequestId{2});
  EXPECT_TRUE(sched_.Decide(10).empty());
  EXPECT_EQ(Held(), 0u);
  const ModelFigures figures = sched_.Figures(kModel);
  EXPECT_EQ(figures.admitted + figures.cancelled + figures.queued, 0u);
}

TEST_F(LocalSchedulerTest, DegradedOneCanBeCancelled) {
  Kv(0);
  Submission late = Ask(1, 500);
  late.slo_ttft_us = 100;
  late.degrade_ok = true;
  Submit(late);
  EXPECT_TRUE(sched_.Decide(0).empty());
  sched_.Cancel(RequestId{1});
  EXPECT_EQ(sched_.Figures(kModel).queued, 0u);
  EXPECT_EQ(sched_.Figures(kModel).degraded, 0u);
}

TEST_F(LocalSchedulerTest, ReplicaWithTheLeastPredictedTtftIsChosen) {
  ASSERT_TRUE(
      sched_.SetEngine(ReplicaId{2}, kModel, {100'000, 100'000, 0}).ok());
  Submit(Ask(1, 500));
  EXPECT_EQ(Only(0).engine, kEngine);
  Submit(Ask(2, 500, 1));
  EXPECT_EQ(Only(1).engine, ReplicaId{2}) << "the first has a backlog";
}

TEST_F(LocalSchedulerTest, OutputsTeachHowMuchToKeepFree) {
  const double before = sched_.Figures(kModel).expected_output;
  for (uint64_t id = 1; id <= 50; ++id) {
    Submit(Ask(id, 10));
    EXPECT_EQ(sched_.Decide(0).size(), 1u);
    sched_.Finished(RequestId{id}, 1000);
  }
  EXPECT_GT(sched_.Figures(kModel).expected_output, 900);
  EXPECT_LT(before, 900);
}

TEST_F(LocalSchedulerTest, NonsenseIsRefusedWithValues) {
  Submission s = Ask(1, 0);
  EXPECT_EQ(sched_.Submit(s).code(), absl::StatusCode::kInvalidArgument);
  s = Ask(1, 5);
  s.model = ModelId{2};
  EXPECT_EQ(sched_.Submit(s).code(), absl::StatusCode::kInvalidArgument);
  Submit(Ask(1, 5));
  EXPECT_EQ(sched_.Submit(Ask(1, 5)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(sched_.SetEngine(ReplicaId{9}, ModelId{2}, {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sched_.SetEngine(kEngine, ModelId{1}, {}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fineserve::sched
