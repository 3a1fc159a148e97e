#include "daemon/proxy/admission/fleet_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/proxy/admission/fleet_admission_fixture.h"

namespace fineserve::proxy {
namespace {

using Health = EngineStates::Health;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(FleetAdmissionTest, TargetRatesSplitRequestsEvenlyInTime) {
  UseTwo(3, 1);
  EXPECT_EQ(Split(40), (Counts{{"A", 30}, {"B", 10}}));
  for (size_t i = 0; i + 4 <= asked_.size(); ++i) {
    EXPECT_EQ(std::count(asked_.begin() + i, asked_.begin() + i + 4, "B"), 1);
  }
}

TEST_F(FleetAdmissionTest, EngineWithoutARateIsAskedOnlyInNeed) {
  UseTwo(2, 0);
  EXPECT_EQ(Split(9), (Counts{{"A", 9}}));
  Decide("A", last_, wire::Refusal::kQueueFull);
  EXPECT_EQ(asked_.back(), "B");
}

TEST_F(FleetAdmissionTest, WithoutRatesTheShortestWaitWins) {
  UseTwo();
  Welcome("A", 5'000);
  Welcome("B", 2'000);
  // B's wait grows by 1,000 µs with each of 10 tokens.
  Split(4);
  EXPECT_THAT(asked_, ElementsAre("B", "B", "B", "A"));
  // The waits of requests get shorter as time passes.
  Welcome("A", 5'000);
  Welcome("B", 6'000);
  clock_.AdvanceNs(5'500'000);
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("A"));
}

TEST_F(FleetAdmissionTest, EngineReadsAnothersWeightsSinceOneMoment) {
  UseTwo();
  clock_.AdvanceNs(60'000'000'000);
  EXPECT_FALSE(admission_->ReadingOf("a"));
  const uint64_t since_ns = clock_.NowNs() - 12'000'000'000;
  const auto say = [&](double s, double step_us) {
    wire::WelcomeT welcome;
    welcome.reading.push_back(std::make_unique<wire::PeerReadingT>());
    wire::PeerReadingT& said = *welcome.reading[0];
    said.engine = "a";
    said.bytes = 15 << 20;
    said.lender_pid = 4711;
    said.s = s;
    said.step_us = step_us;
    Receive("A", 0, std::move(welcome));
    return admission_->ReadingOf("a").value_or(PeerReading());
  };
  const PeerReading reading = say(12, 1234.5);
  EXPECT_EQ(reading.bytes, 15u << 20);
  EXPECT_EQ(reading.lender_pid, 4711u);
  EXPECT_EQ(reading.since_ns, since_ns);
  EXPECT_EQ(reading.step_us, 1234u);
  EXPECT_FALSE(admission_->ReadingOf("b"));
  EXPECT_EQ(say(12.1, 0).since_ns, since_ns) << "the message took longer";
  EXPECT_EQ(say(3, 0).since_ns, clock_.NowNs() - 3'000'000'000);
  for (const double wrong : {-1., 1e300, std::nan("")}) {
    EXPECT_LE(say(wrong, wrong).since_ns, clock_.NowNs());
  }
  Welcome("A");
  EXPECT_FALSE(admission_->ReadingOf("a")) << "it has its own again";
}

// Otherwise, each GPU would bring the model back, and evict others for it.
TEST_F(FleetAdmissionTest, ModelComesBackToOneGpu) {
  UseTwo();
  Welcome("A", 400'000, nullptr, /*away=*/true);
  Welcome("B", 400'000, nullptr, /*away=*/true);
  EXPECT_TRUE(admission_->IsEvicted("m", "A"));
  EXPECT_FALSE(admission_->IsEvicted("other", "A"));
  EXPECT_FALSE(admission_->IsEvicted("m", "C"));
  Split(2);
  EXPECT_THAT(asked_, ElementsAre("A", "A")) << "A was asked for it";
  LetWait("A", last_);
  EXPECT_EQ(asked_.size(), 2u);
  Welcome("B", 400'000);
  EXPECT_FALSE(admission_->IsEvicted("m", "B"));
  asked_.clear();
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("B")) << "it is there already";
}

TEST_F(FleetAdmissionTest, LeastLoadCountsOutstandingTokensInstead) {
  config::Fleet fleet = FleetOf({Engine("a", "A"), Engine("b", "B")});
  fleet.proxy.least_load = true;
  Use(std::move(fleet));
  Welcome("A", 0);
  Welcome("B", 9'000'000);
  Submit(Request(1000));
  Decide("A", last_);
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("B"));
}

TEST_F(FleetAdmissionTest, CachedPrefixCountsAsTheWaitThatItSaves) {
  UseTwo();
  AdmissionRequest first = Request(100);
  first.prefix.Add(std::string(4 * PromptPrefix::kBlockBytes, 'x'));
  Submit(first);
  const std::string has_it = asked_.back();
  Decide(has_it, last_);
  const std::string other = has_it == "A" ? "B" : "A";
  const auto ask = [&](uint64_t wait_us) {
    Welcome(has_it, wait_us);
    Welcome(other, 0);
    AdmissionRequest next = first;
    next.id = ++last_;
    Submit(next);
    return asked_.back();
  };
  // Its 100 tokens take 10 ms to prefill.
  EXPECT_EQ(ask(8'000), has_it);
  EXPECT_EQ(ask(30'000), other);
  // An engine that takes no connection has lost its cache.
  admission_->Failed(has_it == "A" ? "a" : "b", EngineError::kConnect);
  EXPECT_EQ(ask(8'000), other);
}

TEST_F(FleetAdmissionTest, RefusedByOneIsAskedOfTheNext) {
  UseTwo(1, 0);
  Submit(Request());
  clock_.AdvanceNs(30'000'000);
  Decide("A", last_, wire::Refusal::kDeadline);
  EXPECT_THAT(asked_, ElementsAre("A", "B"));
  EXPECT_EQ(told_["B"].back().body.AsSubmit()->waited_us, 30'000u);
  EXPECT_THAT(verdicts_, IsEmpty());
  Decide("B", last_, wire::Refusal::kQueueFull);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.why, "because of B");
}

// The second GPU has an engine of the model only according to the fleet file.
TEST_F(FleetAdmissionTest, ReasonOfAGpuThatHasAnEngineIsGiven) {
  UseTwo(1, 0);
  Submit(Request());
  Decide("A", last_, wire::Refusal::kDeadline);
  Decide("B", last_, wire::Refusal::kNoEngine);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.refusal, Refusal::kDeadline);
  EXPECT_EQ(verdicts_[0].second.why, "because of A");
  Submit(Request());
  Decide("A", last_, wire::Refusal::kNoEngine);
  Decide("B", last_, wire::Refusal::kNoEngine);
  ASSERT_EQ(verdicts_.size(), 2u);
  EXPECT_EQ(verdicts_[1].second.refusal, Refusal::kNoEngine);
}

TEST_F(FleetAdmissionTest, GpuWithoutADaemonGetsNothingAndIsOwedNothing) {
  Use(FleetOf({Engine("a", "A", 1), Engine("b", "B", 1)}));
  gpus_.at("A")->GoOn();
  Welcome("B");
  EXPECT_EQ(Split(10), (Counts{{"B", 10}}));
  EXPECT_TRUE(admission_->Ready());
  Welcome("A");
  EXPECT_EQ(Split(10), (Counts{{"A", 5}, {"B", 5}}));
}

TEST_F(FleetAdmissionTest, WithoutAnyDaemonOneAdmitsAlone) {
  Use(FleetOf({Engine("a", "A"), Engine("b", "B")}));
  gpus_.at("A")->GoOn();
  gpus_.at("B")->GoOn();
  Submit(Request());
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_TRUE(verdicts_[0].second.admitted);
}

TEST_F(FleetAdmissionTest, EngineThatDoesNotAnswerOrFailedOnceIsAvoided) {
  UseTwo(9, 1);
  gpus_.at("A")->SetHealth("a", Health::kDoesNot);
  EXPECT_FALSE(admission_->Serves("a"));
  EXPECT_EQ(Split(5), (Counts{{"B", 5}}));
  gpus_.at("A")->SetHealth("a", Health::kServes);
  asked_.clear();
  AdmissionRequest again = Request();
  again.avoid_engine = "a";
  Submit(again);
  EXPECT_THAT(asked_, ElementsAre("B"));
}

TEST_F(FleetAdmissionTest, EngineThatErrsGetsATrialWhileTheOtherServes) {
  UseTwo();
  admission_->Failed("a", EngineError::kStatus);
  EXPECT_TRUE(hellos_["A"].engines[0]->serves) << "once says little";
  for (uint32_t i = 1; i < Breaker::kMostInARow; ++i) {
    admission_->Failed("a", EngineError::kStatus);
  }
  EXPECT_FALSE(hellos_["A"].engines[0]->serves);
  EXPECT_FALSE(admission_->Serves("a"));
  EXPECT_EQ(Split(4), (Counts{{"B", 4}}));
  clock_.AdvanceNs(Breaker::kLeastRestNs);
  gpus_.at("A")->Tick();
  EXPECT_TRUE(hellos_["A"].engines[0]->serves);
  EXPECT_NE(hellos_["A"].engines[0]->trouble, "");
  admission_->Sent("a");
  EXPECT_FALSE(hellos_["A"].engines[0]->serves) << "beside the trial";
  admission_->Answered("a");
  EXPECT_TRUE(hellos_["A"].engines[0]->serves);
}

TEST_F(FleetAdmissionTest, LastEngineThatServesIsNotShutOut) {
  UseTwo();
  gpus_.at("B")->SetHealth("b", Health::kDoesNot);
  for (uint32_t i = 0; i < 2 * Breaker::kMostInARow; ++i) {
    admission_->Failed("a", EngineError::kReset);
  }
  EXPECT_TRUE(admission_->Serves("a"));
  gpus_.at("B")->SetHealth("b", Health::kServes);
  EXPECT_FALSE(admission_->Serves("a"));
}

TEST_F(FleetAdmissionTest, EventsAreReportedToTheDaemonThatAdmitted) {
  UseTwo(1, 0);
  Submit(Request());
  Decide("A", last_, wire::Refusal::kQueueFull);
  Decide("B", last_);
  told_.clear();
  admission_->FirstToken(last_);
  admission_->Finished(last_, 10, 5, Outcome::kDone);
  admission_->FirstToken(last_);
  ASSERT_EQ(told_["B"].size(), 2u);
  EXPECT_NE(told_["B"][0].body.AsFirstToken(), nullptr);
  EXPECT_EQ(told_["B"][1].body.AsFinished()->output_tokens, 5u);
  EXPECT_THAT(told_["A"], IsEmpty());
}

TEST_F(FleetAdmissionTest, CancelledWhileItWaitsGetsNoAnswer) {
  UseTwo(1, 0);
  Submit(Request());
  admission_->Cancel(last_);
  EXPECT_NE(told_["A"].back().body.AsCancel(), nullptr);
  Decide("A", last_, wire::Refusal::kQueueFull);
  EXPECT_THAT(asked_, ElementsAre("A"));
  EXPECT_THAT(verdicts_, IsEmpty());
}

// The request waits at both GPUs, and goes where it can start first.
TEST_F(FleetAdmissionTest, RequestIsBoundLate) {
  UseTwo();
  Submit(Request());
  EXPECT_TRUE(told_["A"].back().body.AsSubmit()->tell_waits);
  LetWait("A", last_);
  EXPECT_THAT(asked_, ElementsAre("A", "B"));
  EXPECT_FALSE(told_["B"].back().body.AsSubmit()->tell_waits) << "the last";
  EXPECT_TRUE(told_["B"].back().body.AsSubmit()->asked_before);
  EXPECT_THAT(verdicts_, IsEmpty());
  Decide("B", last_);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.engine, "b");
  ASSERT_NE(LastCancel("A"), nullptr);
  EXPECT_TRUE(LastCancel("A")->elsewhere);
  Decide("A", last_);  // its verdict was on the way
  EXPECT_EQ(verdicts_.size(), 1u);
  admission_->Finished(last_, 1, 1, Outcome::kDone);
  EXPECT_NE(told_["B"].back().body.AsFinished(), nullptr);
}

TEST_F(FleetAdmissionTest, FirstOneMayFreeUpFirst) {
  UseTwo();
  Submit(Request());
  LetWait("A", last_);
  Decide("A", last_);
  EXPECT_EQ(verdicts_.at(0).second.engine, "a");
  EXPECT_TRUE(LastCancel("B")->elsewhere);
}

TEST_F(FleetAdmissionTest, RequestThatWaitsAtBothIsRefusedByBoth) {
  UseTwo();
  Submit(Request());
  LetWait("A", last_);
  Decide("A", last_, wire::Refusal::kDeadline);
  EXPECT_THAT(verdicts_, IsEmpty());
  Decide("B", last_, wire::Refusal::kDeadline);
  EXPECT_EQ(verdicts_.at(0).second.refusal, Refusal::kDeadline);
}

TEST_F(FleetAdmissionTest, ClientThatLeavesIsCancelledEverywhere) {
  UseTwo();
  Submit(Request());
  LetWait("A", last_);
  admission_->Cancel(last_);
  EXPECT_FALSE(LastCancel("A")->elsewhere);
  EXPECT_FALSE(LastCancel("B")->elsewhere);
}

// Once a GPU has said that it is full, the other GPU is asked first until a
// request ends on the full one.
TEST_F(FleetAdmissionTest, FullGpuIsPassedOverAndItsShareRepaid) {
  UseTwo(1, 1);
  Submit(Request());
  LetWait("A", last_);
  Decide("B", last_);
  EXPECT_EQ(Split(6), (Counts{{"B", 6}}));
  Submit(Request());
  LetWait("B", last_);
  Decide("A", last_);
  admission_->Finished(last_, 1, 1, Outcome::kDone);
  EXPECT_EQ(Split(6), (Counts{{"A", 6}}));
}

TEST_F(FleetAdmissionTest, DaemonThatSaysNothingHoldsUpNoRequest) {
  UseTwo();
  Submit(Request());
  clock_.AdvanceNs(GpuAdmission::kUnheardNs + 1);
  gpus_.at("A")->Tick();
  EXPECT_THAT(asked_, ElementsAre("A", "B"));
  Decide("B", last_);
  EXPECT_EQ(verdicts_.at(0).second.engine, "b");
}

TEST_F(FleetAdmissionTest, DaemonThatDiesLeavesItsRequestsToTheOther) {
  UseTwo();
  Submit(Request());
  LetWait("A", last_);
  gpus_.at("A")->GoOn();
  EXPECT_THAT(verdicts_, IsEmpty()) << "B still decides";
  Decide("B", last_, wire::Refusal::kDeadline);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_TRUE(verdicts_[0].second.unscheduled) << "A's engine may have room";
  EXPECT_EQ(verdicts_[0].second.engine, "a");
}

TEST_F(FleetAdmissionTest, LastDaemonThatDiesLeavesNoRequestWaiting) {
  UseTwo();
  Submit(Request());
  LetWait("A", last_);
  gpus_.at("A")->GoOn();
  gpus_.at("B")->GoOn();
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_TRUE(verdicts_[0].second.unscheduled);
}

// A's daemon and engine are dead, and B is full.
TEST_F(FleetAdmissionTest, DeadGpuDoesNotHideWhyTheOtherRefuses) {
  UseTwo();
  gpus_.at("A")->GoOn();
  AdmissionRequest again = Request();
  again.avoid_engine = "a";
  Submit(again);
  Decide("B", last_, wire::Refusal::kDeadline);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.refusal, Refusal::kDeadline);
}

TEST_F(FleetAdmissionTest, FleetThatIsReadAgainMayHaveOtherGpus) {
  UseTwo();
  admission_->SetFleet(Share(FleetOf({Engine("b", "B"), Engine("c", "C")})));
  ASSERT_EQ(gpus_.count("C"), 1u) << "it is known";
  Welcome("B", 50'000);
  Welcome("C", 90'000);
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("B")) << "A, which waits for nothing, is out";
}

TEST_F(FleetAdmissionTest, ModelThatNoEngineServesIsRefused) {
  UseTwo();
  AdmissionRequest request = Request();
  request.model = "other";
  Submit(request);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.refusal, Refusal::kNoEngine);
}

// The engine of model m starts on request, and serves now.
class StoppedModelOfFleetTest : public FleetAdmissionTest {
 protected:
  StoppedModelOfFleetTest() {
    config::FleetEngine engine = Engine("a", "A");
    engine.on_request = true;
    Use(FleetOf({engine}));
    Welcome("A");
    SetServes(true);
  }
  void SetServes(bool serves) {
    gpus_.at("A")->SetHealth("a", serves ? Health::kServes : Health::kDoesNot);
  }
  uint64_t Waiting() const {
    return admission_->DemandOnRequest().at("a").waiting;
  }
};

TEST_F(StoppedModelOfFleetTest, RequestsThatItsEngineLeftQueuedStartIt) {
  Submit(Request());
  LetWait("A", last_);
  EXPECT_EQ(Waiting(), 0u) << "it waits for the daemon";
  SetServes(false);
  admission_->Tick();
  EXPECT_NE(LastCancel("A"), nullptr);
  EXPECT_EQ(Waiting(), 1u);
  SetServes(true);
  admission_->Tick();
  EXPECT_THAT(asked_, ElementsAre("A", "A"));
  Decide("A", last_);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_TRUE(verdicts_[0].second.admitted);
  EXPECT_EQ(verdicts_[0].second.waited_for, WaitedFor::kStart);
  clock_.AdvanceNs(GpuAdmission::kHelloNs);
  admission_->Tick();
  ASSERT_EQ(hellos_["A"].demand.size(), 1u);
  EXPECT_EQ(hellos_["A"].demand[0]->arrived, 1u) << "one request came";
}

TEST_F(StoppedModelOfFleetTest, SloBeginsWithTheLastStartThatItWaitedFor) {
  uint64_t served_ns = 0;
  Submit(Request());
  for (int start = 0; start < 2; ++start) {
    SetServes(false);
    admission_->Tick();
    clock_.AdvanceNs(1'000'000'000);
    SetServes(true);
    admission_->Tick();
    served_ns = clock_.NowNs();
  }
  Decide("A", last_);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.slo_begins_ns, served_ns);
  EXPECT_EQ(verdicts_[0].second.waited_us, 2'000'000u);
}

TEST_F(StoppedModelOfFleetTest, RequestThatTheDaemonFindsNoEngineForWaits) {
  Submit(Request());
  SetServes(false);
  Decide("A", last_, wire::Refusal::kNoEngine);
  EXPECT_THAT(verdicts_, IsEmpty());
  EXPECT_EQ(Waiting(), 1u);
}

TEST_F(StoppedModelOfFleetTest, EngineWhoseRequestsWaitAtTheDaemonIsNotIdle) {
  Submit(Request());
  LetWait("A", last_);
  clock_.AdvanceNs(2'000'000'000);
  admission_->Tick();
  EXPECT_EQ(admission_->DemandOnRequest().at("a").idle_s, 0);
}

TEST_F(StoppedModelOfFleetTest, RequestIsRefusedIfItsEngineLeavesTheFleet) {
  SetServes(false);
  Submit(Request());
  EXPECT_THAT(verdicts_, IsEmpty());
  admission_->SetFleet(Share(FleetOf({})));
  admission_->Tick();
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.refusal, Refusal::kNoEngine);
}

TEST_F(StoppedModelOfFleetTest, RequestWaitsUntilItsEngineHasAnsweredHealth) {
  config::FleetEngine engine = Engine("a", "A");
  engine.on_request = true;
  Use(FleetOf({engine}));  // a proxy that has just begun
  Welcome("A");
  Submit(Request());
  EXPECT_EQ(Waiting(), 1u);
  SetServes(true);
  admission_->Tick();
  EXPECT_THAT(asked_, ElementsAre("A"));
}

TEST_F(StoppedModelOfFleetTest, ForwardedRequestStartsItsEngineAndKeepsIt) {
  SetServes(false);
  EXPECT_TRUE(admission_->AwaitsStart("m"));
  AdmissionRequest request = Request();
  request.is_forwarded = true;
  Submit(request);
  EXPECT_EQ(Waiting(), 1u);
  SetServes(true);
  admission_->Tick();
  EXPECT_FALSE(admission_->AwaitsStart("m"));
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_TRUE(verdicts_[0].second.admitted);
  EXPECT_THAT(asked_, IsEmpty()) << "no daemon decides";

  admission_->Forwards(last_, "a");
  clock_.AdvanceNs(2'000'000'000);
  admission_->Tick();
  EXPECT_EQ(admission_->DemandOnRequest().at("a").idle_s, 0);
  EXPECT_EQ(admission_->RunningByEngine().at("a"), 1u);
  admission_->Finished(last_, 0, 0, Outcome::kDone);
  clock_.AdvanceNs(2'000'000'000);
  admission_->Tick();
  EXPECT_EQ(admission_->DemandOnRequest().at("a").idle_s, 2);
  EXPECT_EQ(admission_->RunningByEngine().count("a"), 0u);
}

using wire::PlaceState;

struct Place {
  std::string engine;
  PlaceState state;
  double target_rate;
};

wire::PlanT PlanOf(uint64_t number, const std::vector<Place>& places) {
  wire::PlanT plan;
  plan.number = number;
  for (const Place& from : places) {
    auto to = std::make_unique<wire::PlannedPlaceT>();
    to->engine = from.engine;
    to->state = from.state;
    to->target_rate = from.target_rate;
    plan.places.push_back(std::move(to));
  }
  return plan;
}

class FleetPlanTest : public FleetAdmissionTest {
 protected:
  void Tell(const std::string& gpu, const wire::PlanT& plan) {
    Welcome(gpu, 0, &plan);
  }
  // Returns the model's counts in the next greeting to the GPU's daemon.
  wire::ModelDemandT ReportedDemand(const std::string& gpu) {
    clock_.AdvanceNs(GpuAdmission::kHelloNs);
    gpus_.at(gpu)->Tick();
    const wire::HelloT& hello = hellos_[gpu];
    return hello.demand.empty() ? wire::ModelDemandT() : *hello.demand[0];
  }
};

TEST_F(FleetPlanTest, RatesOfTheNewestPlanGoBeforeTheFleets) {
  UseTwo(1, 1);
  Tell("A",
       PlanOf(3, {{"a", PlaceState::kServe, 3}, {"b", PlaceState::kServe, 1}}));
  EXPECT_EQ(Split(40), (Counts{{"A", 30}, {"B", 10}}));
  Tell("B",
       PlanOf(4, {{"a", PlaceState::kServe, 1}, {"b", PlaceState::kServe, 3}}));
  EXPECT_EQ(Split(40), (Counts{{"A", 10}, {"B", 30}}));
}

TEST_F(FleetPlanTest, OlderPlanIsIgnoredWhicheverDaemonTellsIt) {
  UseTwo(1, 1);
  Tell("A",
       PlanOf(4, {{"a", PlaceState::kServe, 3}, {"b", PlaceState::kServe, 1}}));
  Tell("B",
       PlanOf(3, {{"a", PlaceState::kOff, 0}, {"b", PlaceState::kServe, 1}}));
  EXPECT_EQ(Split(40), (Counts{{"A", 30}, {"B", 10}}));
}

TEST_F(FleetPlanTest, FleetWithoutAPlannerLearnsNoPlanFromALateDaemon) {
  UseTwo(1, 1);
  const auto plan =
      PlanOf(3, {{"a", PlaceState::kServe, 3}, {"b", PlaceState::kOff, 0}});
  Tell("A", plan);
  EXPECT_FALSE(admission_->LetsIn("b"));
  config::Fleet fleet = FleetOf({Engine("a", "A", 1), Engine("b", "B", 1)});
  fleet.planner.on = false;
  admission_->SetFleet(Share(fleet));
  Tell("A", plan);
  EXPECT_TRUE(admission_->LetsIn("b"));
  EXPECT_EQ(Split(40), (Counts{{"A", 20}, {"B", 20}}));
}

TEST_F(FleetPlanTest, EnginesThatThePlanDoesNotNameKeepTheFleetsRates) {
  UseTwo(1, 3);
  Tell("A", PlanOf(1, {{"a", PlaceState::kServe, 1}}));
  EXPECT_EQ(Split(40), (Counts{{"A", 10}, {"B", 30}}));
}

TEST_F(FleetPlanTest, PlaceThatDoesNotServeIsAskedAfterAllOthers) {
  for (const PlaceState state :
       {PlaceState::kOff, PlaceState::kStart, PlaceState::kRetire}) {
    SCOPED_TRACE(static_cast<int>(state));
    UseTwo(9, 0);
    gpus_.at("B")->SetHealth("b", Health::kDoesNot);
    gpus_.at("B")->GoOn();
    Tell("A", PlanOf(1, {{"a", state, 9}, {"b", PlaceState::kServe, 0}}));
    asked_.clear();
    verdicts_.clear();
    Submit(Request());
    EXPECT_EQ(verdicts_.size(), 1u) << "B, whose daemon is away, admits alone";
    EXPECT_THAT(asked_, ElementsAre());
  }
}

TEST_F(FleetPlanTest, PlaceThatDoesNotServeIsStillAskedInNeed) {
  UseTwo(1, 1);
  Tell("A", PlanOf(1, {{"a", PlaceState::kRetire, 0},
                       {"b", PlaceState::kServe, 1}}));
  asked_.clear();
  Submit(Request());
  Decide("B", last_, wire::Refusal::kQueueFull);
  EXPECT_THAT(asked_, ElementsAre("B", "A"));
}

TEST_F(FleetPlanTest, OnlyAnEngineThatThePlanLetsServeCountsAsAnswering) {
  Use(FleetOf({Engine("a1", "A"), Engine("a2", "A"), Engine("b", "B")}));
  Welcome("A", 0);
  Welcome("B", 9'000'000);
  Tell("A", PlanOf(1, {{"a1", PlaceState::kServe, 0},
                       {"a2", PlaceState::kRetire, 0}}));
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("A"));
  gpus_.at("A")->SetHealth("a1", Health::kDoesNot);
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("B")) << "A's other one gets nothing new";
}

TEST_F(FleetPlanTest, WithoutADaemonThePlanStillChoosesTheEngine) {
  Use(FleetOf({Engine("a1", "A"), Engine("a2", "A")}));
  Tell("A", PlanOf(1, {{"a1", PlaceState::kRetire, 0},
                       {"a2", PlaceState::kServe, 0}}));
  gpus_.at("A")->GoOn();
  for (int i = 0; i < 2; ++i) {
    Submit(Request(1000));
    EXPECT_EQ(verdicts_.back().second.engine, "a2");
  }
  gpus_.at("A")->SetHealth("a2", EngineStates::Health::kDoesNot);
  Submit(Request());
  EXPECT_EQ(verdicts_.back().second.engine, "a1") << "the other one is down";
}

TEST_F(FleetPlanTest, EveryDaemonHearsTheDemandOfTheWholeFleet) {
  UseTwo(1, 0);
  EXPECT_EQ(ReportedDemand("A").model, "");
  Submit(Request(10));
  Decide("A", last_, wire::Refusal::kQueueFull);
  Decide("B", last_);
  admission_->FirstToken(last_);
  admission_->Finished(last_, 10, 5, Outcome::kDone);
  for (const std::string gpu : {"A", "B"}) {
    const wire::ModelDemandT demand = ReportedDemand(gpu);
    EXPECT_EQ(demand.model, "m") << gpu;
    EXPECT_EQ(demand.arrived, 1u) << "it was tried on two GPUs";
    EXPECT_EQ(demand.prompt_tokens, 10u);
    EXPECT_EQ(demand.answered, 1u);
    EXPECT_EQ(demand.output_tokens, 5u);
  }
}

TEST_F(FleetPlanTest, RefusalsAreLateAndCancelledOnesAreNot) {
  Use([] {
    config::Fleet fleet = FleetOf({Engine("a", "A")});
    fleet.models.emplace_back().name = "idle";
    return fleet;
  }());
  Welcome("A");
  Submit(Request());
  Decide("A", last_, wire::Refusal::kDeadline);
  EXPECT_EQ(ReportedDemand("A").late, 1u);
  Submit(Request());
  admission_->Cancel(last_);
  EXPECT_EQ(ReportedDemand("A").late, 1u);
  EXPECT_EQ(ReportedDemand("A").arrived, 2u);
  AdmissionRequest nowhere = Request();
  nowhere.model = "idle";
  Submit(nowhere);
  const wire::ModelDemandT idle = ReportedDemand("A");
  EXPECT_EQ(idle.model, "idle");
  EXPECT_EQ(idle.arrived, 1u);
  EXPECT_EQ(idle.late, 1u) << "no engine has it";
  AdmissionRequest unknown = Request();
  unknown.model = "a name that a client made up";
  Submit(unknown);
  ReportedDemand("A");
  EXPECT_EQ(hellos_["A"].demand.size(), 2u);
}

}  // namespace

}  // namespace fineserve::proxy
