#include "daemon/proxy/admission/gpu_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/contract/wire/message.h"
#include "daemon/proxy/admission/fleet_admission_fixture.h"

namespace fineserve::proxy {
namespace {

using Health = EngineStates::Health;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Time between a request's arrival and Submit.
constexpr uint64_t kCountingNs = 3'000'000;

std::shared_ptr<config::Fleet> OneModel(bool fail_open) {
  auto fleet = std::make_shared<config::Fleet>();
  fleet->proxy.fail_open = fail_open;
  fleet->models.resize(1);
  fleet->models[0].name = "m";
  for (const char* name : {"a", "b"}) {
    config::FleetEngine engine;
    engine.name = name;
    engine.model = "m";
    fleet->engines.push_back(engine);
  }
  return fleet;
}

class GpuAdmissionTest : public ::testing::Test {
 protected:
  GpuAdmissionTest() { Use(true); }

  void Use(bool fail_open) {
    clock_.AdvanceNs(1'000'000'000);
    admission_ = std::make_unique<GpuAdmission>(OneModel(fail_open), &clock_);
    admission_->SetSend([this](absl::string_view bytes) {
      if (!connected_) return false;
      told_.push_back(*wire::Decode(bytes));
      return true;
    });
    told_.clear();
  }
  template <typename Body>
  void Receive(uint64_t request, Body body, uint64_t epoch = kEpoch) {
    admission_->Receive(wire::Encode(epoch, request, std::move(body)));
  }
  void Welcome(uint64_t epoch = kEpoch) { Receive(0, wire::WelcomeT(), epoch); }
  void Submit(uint64_t id, uint32_t prompt_tokens = 10) {
    AdmissionRequest request;
    request.id = id;
    request.model = "m";
    request.prompt_tokens = prompt_tokens;
    request.arrived_ns = clock_.NowNs() - kCountingNs;
    admission_->Submit(request, [this, id](Verdict v) {
      verdicts_.emplace_back(id, std::move(v));
    });
  }
  void Admit(uint64_t id, const std::string& engine) {
    wire::VerdictT verdict;
    verdict.admitted = true;
    verdict.engine = engine;
    Receive(id, std::move(verdict));
  }
  // Returns the messages sent since the last call, in the form "Submit 3".
  std::vector<std::string> Messages() {
    std::vector<std::string> reported;
    for (const wire::MessageT& message : told_) {
      reported.push_back(std::string(wire::EnumNameBody(message.body.type)) +
                         " " + std::to_string(message.request));
    }
    told_.clear();
    return reported;
  }

  ManualClock clock_;
  bool connected_ = true;
  std::vector<wire::MessageT> told_;
  std::vector<std::pair<uint64_t, Verdict>> verdicts_;
  std::unique_ptr<GpuAdmission> admission_;
};

TEST_F(GpuAdmissionTest, VerdictOfTheDaemonIsPassedOn) {
  Welcome();
  Messages();
  Submit(3);
  EXPECT_THAT(Messages(), ElementsAre("Submit 3"));
  EXPECT_THAT(verdicts_, IsEmpty());
  wire::VerdictT refusal;
  refusal.refusal = wire::Refusal::kDeadline;
  refusal.why = "late";
  refusal.retry_after_ms = 1500;
  refusal.predicted_ttft_ms = 900;
  Receive(3, std::move(refusal));
  ASSERT_EQ(verdicts_.size(), 1u);
  const Verdict& verdict = verdicts_[0].second;
  EXPECT_FALSE(verdict.admitted);
  EXPECT_EQ(verdict.refusal, Refusal::kDeadline);
  EXPECT_EQ(verdict.why, "late");
  EXPECT_EQ(verdict.retry_after_ms, 1500u);
  EXPECT_EQ(verdict.predicted_ttft_ms, 900u);
}

TEST_F(GpuAdmissionTest, DaemonThatSaysGoodbyeIsAwayUntilItGreetsAgain) {
  Welcome();
  Submit(3);
  EXPECT_THAT(verdicts_, IsEmpty());
  Messages();
  Receive(0, wire::GoodbyeT());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].body.AsHello() != nullptr && told_[0].epoch == 0)
      << "which shows that it knows";
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_TRUE(verdicts_[0].second.admitted);
  EXPECT_TRUE(verdicts_[0].second.unscheduled);
  EXPECT_FALSE(admission_->HasDaemon());
  Submit(4);
  EXPECT_TRUE(verdicts_.at(1).second.unscheduled);
  Messages();
  admission_->Tick();
  EXPECT_THAT(Messages(), ElementsAre("Hello 0")) << "with every tick";
  Welcome(kEpoch + 1);
  EXPECT_EQ(told_.at(0).body.AsHello()->unscheduled, 2u);
  Submit(5);
  EXPECT_EQ(verdicts_.size(), 2u) << "the daemon decides again";
}

TEST_F(GpuAdmissionTest, LifeOfAnAdmittedRequestIsReported) {
  Welcome();
  Submit(3);
  Admit(3, "b");
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.engine, "b");
  Messages();
  admission_->FirstToken(3);
  admission_->Finished(3, 12, 40, Outcome::kDone);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1].body.AsFinished()->output_tokens, 40u);
  EXPECT_EQ(told_[1].epoch, kEpoch);
  EXPECT_THAT(Messages(), ElementsAre("FirstToken 3", "Finished 3"));
}

TEST_F(GpuAdmissionTest, EndWithoutAWaiterGoesWithTheNextMessage) {
  int held = 0;
  admission_->SetHold([&] { ++held; });
  Welcome();
  for (const uint64_t id : {1, 2, 3}) {
    Submit(id);
    Admit(id, "a");
  }
  Messages();
  admission_->Finished(1, 1, 1, Outcome::kDone);
  admission_->Finished(2, 1, 1, Outcome::kDone);
  EXPECT_THAT(Messages(), IsEmpty());
  EXPECT_EQ(held, 1);
  Submit(4);
  EXPECT_THAT(Messages(), ElementsAre("Finished 1", "Finished 2", "Submit 4"));
  admission_->Finished(3, 1, 1, Outcome::kDone);
  EXPECT_THAT(Messages(), ElementsAre("Finished 3")) << "4 waits for its place";
  Admit(4, "a");
  admission_->Finished(4, 1, 1, Outcome::kDone);
  EXPECT_EQ(held, 2);
  admission_->Flush();
  EXPECT_THAT(Messages(), ElementsAre("Finished 4"));
}

TEST_F(GpuAdmissionTest, EndOfARequestMayHaveMadeRoom) {
  Welcome();
  Submit(1);
  Admit(1, "a");
  Submit(2);
  wire::WaitsT waits;
  waits.start_us = 1000;
  Receive(2, std::move(waits));
  EXPECT_TRUE(admission_->waits().IsFull("m"));
  admission_->Finished(1, 1, 1, Outcome::kDone);
  EXPECT_FALSE(admission_->waits().IsFull("m"));
}

TEST_F(GpuAdmissionTest, NewDaemonDoesNotHearOfEndsThatWerePutOff) {
  admission_->SetHold([] {});
  Welcome();
  Submit(1);
  Admit(1, "a");
  admission_->Finished(1, 1, 1, Outcome::kDone);
  Messages();
  Welcome(kEpoch + 1);
  admission_->Flush();
  EXPECT_THAT(Messages(), ElementsAre("Hello 0"));
}

TEST_F(GpuAdmissionTest, VerdictNamesTheDaemonAndWhatWasWaitedFor) {
  Welcome();
  Submit(3);
  wire::VerdictT verdict;
  verdict.admitted = true;
  verdict.engine = "a";
  verdict.waited_for = wire::WaitedFor::kKv;
  verdict.waited_us = 1234;
  Receive(3, std::move(verdict));
  EXPECT_EQ(verdicts_[0].second.waited_for, WaitedFor::kKv);
  EXPECT_EQ(verdicts_[0].second.waited_us, 1234u);
  EXPECT_EQ(verdicts_[0].second.decided_by, DecidedBy::kDaemon);
  Submit(4);
  admission_->GoOn();  // the daemon never answers
  EXPECT_EQ(verdicts_[1].second.waited_for, WaitedFor::kDaemon);
  EXPECT_EQ(verdicts_[1].second.decided_by, DecidedBy::kProxy);
  Submit(5);
  EXPECT_EQ(verdicts_[2].second.waited_for, WaitedFor::kNothing);
}

TEST_F(GpuAdmissionTest, CancelledRequestGetsNoVerdict) {
  Welcome();
  Submit(3);
  admission_->Cancel(3);
  Messages();
  Admit(3, "a");
  EXPECT_THAT(verdicts_, IsEmpty());
}

TEST_F(GpuAdmissionTest, BeforeTheFirstWelcomeRequestsWaitForAWhile) {
  Submit(1);
  clock_.AdvanceNs(GpuAdmission::kPatienceNs - 1);
  admission_->Tick();
  EXPECT_THAT(Messages(), ElementsAre("Hello 0"));
  EXPECT_THAT(verdicts_, IsEmpty());
  Welcome();
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1].body.AsSubmit()->waited_us,
            (kCountingNs + GpuAdmission::kPatienceNs - 1) / 1000);
  EXPECT_THAT(Messages(), ElementsAre("Hello 0", "Submit 1"));
}

TEST_F(GpuAdmissionTest, WithoutADaemonEverybodyIsAdmittedIfItFailsOpen) {
  connected_ = false;
  Submit(1);
  clock_.AdvanceNs(GpuAdmission::kPatienceNs);
  EXPECT_FALSE(admission_->Ready());
  admission_->Tick();
  EXPECT_TRUE(admission_->Ready());
  Submit(2);
  ASSERT_EQ(verdicts_.size(), 2u);
  EXPECT_TRUE(verdicts_[0].second.admitted);
  EXPECT_TRUE(verdicts_[1].second.admitted);
  EXPECT_NE(verdicts_[0].second.engine, verdicts_[1].second.engine)
      << "by load";
}

TEST_F(GpuAdmissionTest, WhereThereIsNoDaemonNoRequestWaitsForOne) {
  Submit(1);
  admission_->GoOn();
  Submit(2);
  EXPECT_EQ(verdicts_.size(), 2u);
  EXPECT_TRUE(admission_->Ready());
  Welcome();
  Submit(3);
  EXPECT_EQ(verdicts_.size(), 2u);
}

TEST_F(GpuAdmissionTest, WithoutADaemonEverybodyIsRefusedIfItFailsClosed) {
  Use(false);
  connected_ = false;
  Submit(1);
  clock_.AdvanceNs(GpuAdmission::kPatienceNs);
  admission_->Tick();
  Submit(2);
  ASSERT_EQ(verdicts_.size(), 2u);
  for (const auto& [id, verdict] : verdicts_) {
    EXPECT_EQ(verdict.refusal, Refusal::kDaemonAway);
    EXPECT_EQ(verdict.retry_after_ms, GpuAdmission::kRetryAfterMs);
  }
  EXPECT_FALSE(admission_->Ready());
}

TEST_F(GpuAdmissionTest, GrowthIsReportedAtABeatAndOnce) {
  Welcome();
  for (const uint64_t id : {1, 2}) {
    Submit(id);
    Admit(id, "a");
  }
  Messages();
  admission_->Progress(1, 5);
  admission_->Progress(1, 9);
  admission_->Progress(77, 3);
  EXPECT_THAT(Messages(), IsEmpty());
  admission_->Tick();
  ASSERT_EQ(told_.size(), 1u);
  const wire::ProgressT* progress = told_[0].body.AsProgress();
  ASSERT_NE(progress, nullptr);
  ASSERT_EQ(progress->streams.size(), 1u);
  EXPECT_EQ(progress->streams[0]->request, 1u);
  EXPECT_EQ(progress->streams[0]->output_tokens, 9u);
  EXPECT_EQ(told_[0].epoch, kEpoch);
  Messages();
  admission_->Tick();
  EXPECT_THAT(Messages(), IsEmpty());
}

TEST_F(GpuAdmissionTest, GrowthWithoutADaemonIsReportedToTheNext) {
  Welcome();
  Submit(1);
  Admit(1, "a");
  admission_->GoOn();
  Messages();
  admission_->Progress(1, 40);
  admission_->Tick();
  EXPECT_THAT(Messages(), ElementsAre("Hello 0"));
  Welcome(kEpoch + 1);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].body.AsHello()->running[0]->output_tokens, 40u);
  Messages();
  admission_->Tick();
  EXPECT_THAT(Messages(), IsEmpty()) << "it knows";
}

TEST_F(GpuAdmissionTest, NewDaemonHearsWhatRunsAndIsAskedAboutWhatWaits) {
  Welcome();
  Submit(1);
  Admit(1, "a");
  Submit(2);
  Messages();
  Welcome(kEpoch + 1);
  ASSERT_EQ(told_.size(), 2u);
  const wire::HelloT* hello = told_[0].body.AsHello();
  ASSERT_NE(hello, nullptr);
  ASSERT_EQ(hello->running.size(), 1u);
  EXPECT_EQ(hello->running[0]->request, 1u);
  EXPECT_EQ(hello->running[0]->engine, "a");
  EXPECT_TRUE(hello->reset);
  EXPECT_EQ(told_[1].body.AsSubmit() != nullptr, true);
  EXPECT_EQ(told_[1].request, 2u);
  EXPECT_EQ(told_[1].epoch, kEpoch + 1);
}

TEST_F(GpuAdmissionTest, DaemonThatWasNotGreetedIsGreetedAndAskedAgain) {
  Welcome();
  Submit(1);
  Messages();
  wire::RefusedT refused;
  refused.ungreeted = true;
  Receive(1, wire::RefusedT(refused), kEpoch + 1);
  Receive(1, wire::RefusedT(refused), kEpoch + 1);
  EXPECT_FALSE(told_[0].body.AsHello()->reset);
  EXPECT_THAT(Messages(), ElementsAre("Hello 0")) << "once";
  EXPECT_THAT(verdicts_, IsEmpty());
  Welcome(kEpoch + 1);
  EXPECT_THAT(Messages(), ElementsAre("Hello 0", "Submit 1"));
}

// A message is not taken if the connection was replaced, or if more messages
// wait than the connection takes.
TEST_F(GpuAdmissionTest, MessageThatIsNotTakenMakesItGreetAgain) {
  Welcome();
  Submit(1);
  Admit(1, "a");
  connected_ = false;
  Submit(2);
  connected_ = true;
  Messages();
  clock_.AdvanceNs(GpuAdmission::kHelloNs);
  admission_->Tick();
  EXPECT_EQ(told_[0].epoch, 0u);
  Messages();
  Welcome();
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[0].body.AsHello()->running.size(), 1u);
  EXPECT_THAT(Messages(), ElementsAre("Hello 0", "Submit 2"));
}

TEST_F(GpuAdmissionTest, RefusedRequestGetsAReason) {
  Welcome();
  Submit(1);
  wire::RefusedT refused;
  refused.why = "no model \"m\" in this daemon's fleet";
  Receive(1, std::move(refused));
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_THAT(verdicts_[0].second.why, HasSubstr("no model"));
}

TEST_F(GpuAdmissionTest, RequestsOfADeadDaemonCountForTheProxyAlone) {
  Welcome();
  Submit(1, 1000);
  Admit(1, "a");
  connected_ = false;
  clock_.AdvanceNs(GpuAdmission::kPatienceNs);
  admission_->Tick();
  for (const uint64_t id : {2, 3, 4}) {
    Submit(id, 10);
    EXPECT_EQ(verdicts_.back().second.engine, "b");
  }
}

TEST_F(GpuAdmissionTest, HealthIsReportedWhenItChangesAndWithEachHello) {
  Welcome();
  Messages();
  admission_->SetHealth("a", Health::kServes);  // as had been supposed
  EXPECT_THAT(Messages(), IsEmpty());
  admission_->SetHealth("b", Health::kDoesNot);
  ASSERT_EQ(told_.size(), 1u);
  const wire::HelloT* hello = told_[0].body.AsHello();
  ASSERT_NE(hello, nullptr);
  EXPECT_TRUE(hello->engines[0]->serves);
  EXPECT_FALSE(hello->engines[1]->serves);
  Messages();
  admission_->SetHealth("b", Health::kDoesNot);
  EXPECT_THAT(Messages(), IsEmpty());
  clock_.AdvanceNs(GpuAdmission::kHelloNs);
  admission_->Tick();
  EXPECT_THAT(Messages(), ElementsAre("Hello 0"));
}

// The daemon of another GPU may have brought the plan.
TEST_F(GpuAdmissionTest, DaemonHearsOfANewPlanWithTheNextTick) {
  wire::NewestPlan newest;
  admission_->SetPlan(&newest);
  Welcome();
  EXPECT_EQ(told_.back().body.AsHello()->plan_number, 0u);
  Messages();
  wire::PlanT plan;
  plan.number = 5;
  EXPECT_TRUE(newest.Take(plan).ok());
  admission_->Tick();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].body.AsHello()->plan_number, 5u);
  Messages();
  admission_->Tick();
  EXPECT_THAT(Messages(), IsEmpty());
}

TEST_F(GpuAdmissionTest, DaemonHearsSinceWhenAnEngineDoesNotServe) {
  clock_.AdvanceNs(1);
  Welcome();
  admission_->states().SetUnanswered("b", clock_.NowNs());
  admission_->states().SetTrouble("b", "its name does not resolve");
  clock_.AdvanceNs(6'000'000'000);
  Messages();
  admission_->SetHealth("b", Health::kDoesNot, clock_.NowNs());
  ASSERT_EQ(told_.size(), 1u);
  const wire::HelloT* hello = told_[0].body.AsHello();
  ASSERT_NE(hello, nullptr);
  EXPECT_LT(hello->engines[0]->silent_s, 0);
  EXPECT_NEAR(hello->engines[1]->silent_s, 6, 1e-6)
      << "it owed the answer all the while";
  EXPECT_NEAR(hello->engines[1]->trouble_s, 6, 1e-6);
}

// The failure may be the request's fault, or bad luck. If the engine counted as
// not serving, other requests would be refused.
TEST_F(GpuAdmissionTest, EngineThatBrokeOffOneRequestStillServes) {
  Welcome();
  admission_->SetHealth("a", Health::kServes);
  Submit(1);
  Admit(1, "a");
  Messages();
  admission_->Finished(1, 0, 0, Outcome::kEngineGone);
  EXPECT_THAT(Messages(), ElementsAre("Finished 1"));
  EXPECT_TRUE(admission_->states().Serves("a"));
}

TEST_F(GpuAdmissionTest, FailedRequestGoesToTheDaemonsOtherEngineIfThatServes) {
  Welcome();
  for (const bool serves : {true, false}) {
    admission_->SetHealth("b", serves ? Health::kServes : Health::kDoesNot);
    AdmissionRequest again;
    again.id = serves ? 1 : 2;
    again.model = "m";
    again.avoid_engine = "a";
    admission_->Submit(
        again, [this](Verdict v) { verdicts_.emplace_back(0, std::move(v)); });
    Admit(again.id, "a");
    EXPECT_EQ(verdicts_.back().second.engine, serves ? "b" : "a");
  }
  EXPECT_THAT(admission_->RunningByEngine(),
              ElementsAre(Pair("a", uint64_t{1}), Pair("b", uint64_t{1})));
}

TEST_F(GpuAdmissionTest, SuspectedEngineIsProbedAtOnce) {
  std::vector<std::string> probed;
  admission_->SetProbe([&](const config::FleetEngine& engine) {
    probed.push_back(engine.name);
  });
  admission_->Suspect("a");
  admission_->Suspect("unknown");
  EXPECT_THAT(probed, ElementsAre("a"));
}

TEST_F(GpuAdmissionTest, EveryEventAndAnswerIsASignOfLife) {
  Welcome();
  Submit(1);
  Admit(1, "a");
  EXPECT_EQ(admission_->states().Signs("a").progressed_ns, 0u);
  admission_->Progress(1, 2);
  EXPECT_EQ(admission_->states().Signs("a").progressed_ns, clock_.NowNs());
  clock_.AdvanceNs(5);
  admission_->states().Progressed("a");
  EXPECT_EQ(admission_->states().Signs("a").progressed_ns, clock_.NowNs());
  EXPECT_EQ(admission_->states().Signs("b").progressed_ns, 0u);
}

// An engine rests before it is started again. Requests that run on it continue
// and are counted.
TEST_F(GpuAdmissionTest, EngineThatRestsDoesNotServeForAWhile) {
  Welcome();
  admission_->SetHealth("a", Health::kServes);
  Submit(1);
  Admit(1, "a");
  Messages();
  admission_->Rest({"a", "unknown"}, {}, clock_.NowNs() + 3'000'000'000);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_FALSE(told_[0].body.AsHello()->engines[0]->serves);
  EXPECT_TRUE(told_[0].body.AsHello()->engines[1]->serves);
  admission_->SetHealth("a", Health::kServes);
  EXPECT_FALSE(admission_->states().Serves("a"));
  EXPECT_THAT(admission_->RunningByEngine(),
              ElementsAre(Pair("a", uint64_t{1})));
  admission_->Finished(1, 0, 0, Outcome::kDone);
  EXPECT_THAT(admission_->RunningByEngine(), IsEmpty());
  clock_.AdvanceNs(3'000'000'000);
  EXPECT_TRUE(admission_->states().Serves("a"));
}

TEST_F(GpuAdmissionTest, DaemonHearsWhichEnginesAnOperatorStopped) {
  Welcome();
  Messages();
  admission_->Rest({"a", "b"}, {"b"}, clock_.NowNs() + 3'000'000'000);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_FALSE(told_[0].body.AsHello()->engines[0]->stopped);
  EXPECT_TRUE(told_[0].body.AsHello()->engines[1]->stopped);
  clock_.AdvanceNs(3'000'000'000);
  EXPECT_FALSE(admission_->states().IsStoppedByHand("b"));
}

TEST_F(GpuAdmissionTest, WithoutADaemonARestingEngineIsAvoided) {
  admission_->GoOn();
  admission_->Rest({"a"}, {}, clock_.NowNs() + 3'000'000'000);
  for (uint64_t id = 1; id <= 3; ++id) {
    Submit(id);
    EXPECT_EQ(verdicts_.back().second.engine, "b");
  }
}

// A request would be cut off when the engine ends.
TEST_F(GpuAdmissionTest, WithoutADaemonNoRequestGoesToEnginesThatAllRest) {
  admission_->GoOn();
  admission_->Rest({"a", "b"}, {}, clock_.NowNs() + 3'000'000'000);
  Submit(1);
  EXPECT_EQ(verdicts_.back().second.refusal, Refusal::kNoEngine);
  clock_.AdvanceNs(3'000'000'000);
  Submit(2);
  EXPECT_TRUE(verdicts_.back().second.admitted);
}

TEST_F(GpuAdmissionTest, WithoutADaemonOnlyUnreachableEnginesGetNothing) {
  admission_->GoOn();
  admission_->SetHealth("a", Health::kUnreachable);
  admission_->SetHealth("b", Health::kDoesNot);
  for (uint64_t id = 1; id <= 3; ++id) {
    Submit(id);
    EXPECT_EQ(verdicts_.back().second.engine, "b");
  }
  admission_->SetHealth("b", Health::kUnreachable);
  Submit(4);
  EXPECT_FALSE(verdicts_.back().second.admitted);
  EXPECT_EQ(verdicts_.back().second.refusal, Refusal::kNoEngine);
  EXPECT_THAT(verdicts_.back().second.why, HasSubstr("out of reach"));
  admission_->SetHealth("b", Health::kDoesNot);
  Submit(5);
  EXPECT_TRUE(verdicts_.back().second.admitted);
}

}  // namespace
}  // namespace fineserve::proxy
