// Tests which peers admission serves, which engines it knows, and fsctl's
// questions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "daemon/fineserved/admission/admission_fixture.h"

namespace fineserve::admission {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(AdmissionServiceTest, HelloTellsTheEpochAndThePolicy) {
  wire::HelloT hello;
  Send(0, std::move(hello), 0);
  const wire::MessageT message = Next();
  EXPECT_EQ(message.epoch, kEpoch);
  ASSERT_NE(message.body.AsWelcome(), nullptr);
  EXPECT_EQ(message.body.AsWelcome()->policy, "fineserve");
}

TEST_F(AdmissionServiceTest, ProxyThatHasNotGreetedThisDaemonIsRefused) {
  Send(1, Ask("small", 100));
  EXPECT_THAT(Refusal(), HasSubstr("has not greeted"));
  Hello();
  Send(1, Ask("small", 100), kEpoch - 1);
  EXPECT_THAT(Refusal(), HasSubstr("has not greeted"))
      << "of an earlier daemon";
  EXPECT_EQ(Models().models[0]->admitted, 0u);
}

TEST_F(AdmissionServiceTest, EngineThatNoProxySaysServesGetsNothing) {
  Hello(false);
  Send(1, Ask("small", 100));
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_FALSE(verdict.admitted);
  EXPECT_EQ(verdict.refusal, wire::Refusal::kNoEngine);
}

TEST_F(AdmissionServiceTest, EngineThatEndsLetsItsRequestsWaitForItsReturn) {
  Hello();
  Hello(false);
  Send(1, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty());
  Hello();
  EXPECT_TRUE(Verdict(1).admitted);
}

TEST_F(AdmissionServiceTest, EngineWithoutARequestForLongLeavesTheGpu) {
  config::Fleet fleet = TwoModels();
  fleet.engines[0].may_evict = true;
  fleet.engines[0].evict_after_s = 60;
  service_ = ServiceOf(fleet, kEpoch);
  const auto minute_passes = [&] {
    for (int s = 0; s < 61; ++s) {
      clock_.AdvanceNs(1'000'000'000);
      Hello();
    }
    return std::exchange(evicted_, {});
  };
  EXPECT_THAT(minute_passes(), ElementsAre("small-a"));
  EXPECT_THAT(minute_passes(), ElementsAre("small-a")) << "asked again";
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  EXPECT_THAT(minute_passes(), IsEmpty()) << "a request runs";
}

// Model "small" has a replica here and one elsewhere, which an autoscaler
// starts and ends.
class ScaledTest : public AdmissionServiceTest {
 protected:
  ScaledTest() {
    config::Fleet fleet = TwoModels();
    fleet.engines[0].is_scaled = true;
    fleet.engines.push_back({"small-b", "small", "127.0.0.1", 4, "GPU-2", {}});
    service_ = ServiceOf(fleet, kEpoch);
  }
  // Lets seconds pass, with `requests` requests for "small" in each. A request
  // of 100 tokens takes 2 ms, and a token of the answer 1 ms.
  void Pass(int seconds, uint64_t requests, bool serves = true) {
    for (int s = 0; s < seconds; ++s) {
      clock_.AdvanceNs(1'000'000'000);
      wire::HelloT hello = Greeting({"small-a", "large-a"}, serves);
      hello.demand.push_back(std::make_unique<wire::ModelDemandT>());
      wire::ModelDemandT& demand = *hello.demand[0];
      arrived_ += requests;
      demand.model = "small";
      demand.arrived = demand.answered = arrived_;
      demand.prompt_tokens = 100 * arrived_;
      demand.output_tokens = 1000 * arrived_;
      Send(0, std::move(hello), 0);
    }
    sent_.clear();
  }
  metrics::ModelFigures Small() const { return service_->Measure().models[0]; }
  // -1: not known.
  int Wanted() const {
    const auto wanted = Small().wanted_replicas;
    return wanted ? static_cast<int>(*wanted) : -1;
  }

  uint64_t arrived_ = 0;
};

TEST_F(ScaledTest, WantedReplicasFollowTheDemandUpAndDown) {
  Pass(10, 0);
  EXPECT_EQ(Wanted(), -1) << "too early to tell";
  Pass(2, 0);
  EXPECT_EQ(Wanted(), 0) << "none asks";
  Pass(5, 1);
  EXPECT_EQ(Wanted(), 1);
  Pass(60, 100);
  EXPECT_EQ(Wanted(), 2);
  EXPECT_EQ(Small().unlisted_replicas, 0u);
  Pass(60, 1);
  EXPECT_EQ(Wanted(), 1);
  Pass(61, 0);
  EXPECT_EQ(Wanted(), 0);
}

TEST_F(ScaledTest, DemandBeyondTheFleetFileIsSaid) {
  Pass(61, 1000);
  EXPECT_EQ(Wanted(), 2);
  EXPECT_GT(Small().unlisted_replicas, 3u);
}

TEST_F(ScaledTest, DemandWantsAReplicaWhileNoneServes) {
  Pass(30, 0, /*serves=*/false);
  EXPECT_EQ(Wanted(), 0);
  Pass(1, 1, /*serves=*/false);
  EXPECT_EQ(Wanted(), 1);
}

TEST_F(ScaledTest, ReplicaThatAnswersForLongIsWanted) {
  Pass(1, 0);
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  Pass(70, 0);
  EXPECT_EQ(Wanted(), 1);
  Send(1, wire::FinishedT());
  EXPECT_EQ(Wanted(), 0);
}

TEST_F(ScaledTest, WithoutAProxyNothingIsWanted) {
  Pass(30, 1);
  EXPECT_EQ(Wanted(), 1);
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs);
  service_->Settle();
  EXPECT_EQ(Wanted(), -1);
}

TEST_F(ScaledTest, ModelWithoutAnEngineHereIsLeftToOthers) {
  config::Fleet fleet = TwoModels();
  fleet.engines[0].gpu = "GPU-2";
  service_ = ServiceOf(fleet, kEpoch);
  Pass(30, 1);
  EXPECT_EQ(Wanted(), -1);
}

TEST_F(ScaledTest, FleetThatIsReadAgainGoesOnWithTheWindow) {
  Pass(30, 1);
  auto next = ServiceOf(TwoModels(), kEpoch);
  next->CountOnFrom(*service_);
  service_ = std::move(next);
  Pass(1, 1);
  EXPECT_EQ(Wanted(), 1);
}

TEST_F(ScaledTest, DrainEndsWithTheLifeOfItsEngine) {
  Pass(5, 0);
  for (const char* engine : {"small-a", "large-a"}) {
    EXPECT_TRUE(Drain(engine));
  }
  Pass(5, 0);
  EXPECT_TRUE(drained_.Has("small-a"));
  Pass(2, 0, /*serves=*/false);
  EXPECT_TRUE(drained_.Has("small-a")) << "it may only be slow";
  Pass(3, 0, /*serves=*/false);
  EXPECT_FALSE(drained_.Has("small-a"));
  EXPECT_TRUE(drained_.Has("large-a")) << "no autoscaler ends that one";
}

class RoomOnTheGpuTest : public AdmissionServiceTest {
 protected:
  RoomOnTheGpuTest() {
    config::Fleet fleet = TwoModels();
    for (config::FleetEngine& engine : fleet.engines) engine.may_evict = true;
    service_ = ServiceOf(fleet, kEpoch);
  }
  bool MakeRoom(const std::string& asker = "") {
    evicted_.clear();
    return service_->MakeRoom(asker, /*lack=*/0, /*may_rest=*/true) ==
           evict::Room::kComes;
  }
  // Lets "small" run a request while a request for "large", whose engine is
  // away, waits.
  void LetSmallRunAndLargeWait() {
    Send(1, Ask("small", 100));
    EXPECT_TRUE(Verdict(1).admitted);
    LetWait("large");
  }
  void LetWait(const std::string& model) {
    back_in_[model + "-a"] = 1000;
    wire::SubmitT submit = Ask(model, 100);
    submit.slo_ttft_us = 600'000'000;
    Send(90, std::move(submit));
    EXPECT_THAT(sent_, IsEmpty());
  }
  void PassSeconds(int seconds) {
    for (int s = 0; s < seconds; ++s) {
      clock_.AdvanceNs(1'000'000'000);
      Hello();
    }
  }
};

TEST_F(RoomOnTheGpuTest, IdleEngineLeavesAndOneWithARequestStays) {
  EXPECT_TRUE(MakeRoom()) << "proxies may not yet have said who is idle";
  EXPECT_THAT(evicted_, IsEmpty());
  clock_.AdvanceNs(4'000'000'000);
  EXPECT_FALSE(MakeRoom()) << "none has served yet";
  Hello();
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  EXPECT_TRUE(MakeRoom());
  EXPECT_THAT(evicted_, ElementsAre("large-a"));
  away_ = {"large-a"};
  PassSeconds(1);
  Send(1, wire::FinishedT());
  EXPECT_TRUE(MakeRoom());
  EXPECT_THAT(evicted_, ElementsAre("small-a"));
  EXPECT_FALSE(MakeRoom("small-a")) << "none leaves for itself";
}

TEST_F(RoomOnTheGpuTest, WithoutAProxyAnEngineWithoutKvInUseIsIdle) {
  view_of_small_a_ = EngineKv::View{100, 100, 1};
  clock_.AdvanceNs(4'000'000'000);
  service_->Settle();
  EXPECT_TRUE(MakeRoom()) << "it will leave later";
  EXPECT_THAT(evicted_, IsEmpty());
  view_of_small_a_->used_tokens = 0;
  service_->Settle();
  EXPECT_TRUE(MakeRoom());
  EXPECT_THAT(evicted_, ElementsAre("small-a"));
}

TEST_F(RoomOnTheGpuTest, BusyEngineRestsForOthersAndLeavesOnceItIsIdle) {
  away_ = {"large-a"};
  PassSeconds(30);
  LetSmallRunAndLargeWait();
  EXPECT_TRUE(MakeRoom("large-a")) << "it will leave";
  EXPECT_THAT(evicted_, IsEmpty());
  Send(2, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty()) << "it waits";
  Send(1, wire::FinishedT());
  EXPECT_TRUE(MakeRoom("large-a"));
  EXPECT_THAT(evicted_, ElementsAre("small-a"));
}

TEST_F(RoomOnTheGpuTest, EngineThatLeftForOthersComesAheadOfItsNextRequest) {
  PassSeconds(30);
  EXPECT_FALSE(service_->AnyIsOut());
  ASSERT_TRUE(MakeRoom());
  ASSERT_EQ(evicted_.size(), 1u);
  const std::string left = evicted_[0];
  away_ = {left};
  PassSeconds(1);
  EXPECT_TRUE(service_->AnyIsOut());
  needed_.clear();
  service_->BringAhead(2 * kGiB - 1);
  EXPECT_THAT(needed_, IsEmpty()) << "as much again has to stay free";
  service_->BringAhead(2 * kGiB);
  EXPECT_THAT(needed_, ElementsAre(left));
  away_.clear();
  PassSeconds(1);
  EXPECT_FALSE(service_->AnyIsOut());
}

TEST_F(RoomOnTheGpuTest, NoEngineComesAheadWhileRequestsWait) {
  PassSeconds(30);
  ASSERT_TRUE(MakeRoom("small-a"));
  ASSERT_THAT(evicted_, ElementsAre("large-a"));
  away_ = {"large-a"};
  LetSmallRunAndLargeWait();
  needed_.clear();
  service_->BringAhead(9 * kGiB);
  EXPECT_THAT(needed_, IsEmpty());
}

TEST_F(RoomOnTheGpuTest, EngineThatIsHereLacksMemoryForRequestsNotForTheNext) {
  PassSeconds(30);
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("large", 100));
  EXPECT_TRUE(Verdict(2).admitted);
  const auto make_room = [this] {
    return service_->MakeRoom("small-a", /*lack=*/0, /*may_rest=*/false);
  };
  EXPECT_EQ(make_room(), evict::Room::kNone) << "slabs may leave for it";
  EXPECT_TRUE(MakeRoom("small-a")) << "the other rests";
  Send(1, wire::FinishedT());
  away_ = {"small-a"};
  EXPECT_EQ(make_room(), evict::Room::kNotForNext);
}

TEST_F(RoomOnTheGpuTest, RestEndsIfNoneAsksForRoom) {
  away_ = {"large-a"};
  PassSeconds(30);
  LetSmallRunAndLargeWait();
  EXPECT_TRUE(MakeRoom("large-a"));
  PassSeconds(4);
  Send(2, Ask("small", 100));
  EXPECT_TRUE(Verdict(2).admitted);
}

TEST_F(RoomOnTheGpuTest, EngineThatHasJustComeDoesNotRest) {
  away_ = {"large-a", "small-a"};
  PassSeconds(30);
  EXPECT_FALSE(MakeRoom());
  away_ = {"large-a"};
  LetSmallRunAndLargeWait();
  EXPECT_TRUE(MakeRoom("large-a")) << "it will leave later";
  Send(2, Ask("small", 100));
  EXPECT_TRUE(Verdict(2).admitted);
  PassSeconds(11);
  EXPECT_TRUE(MakeRoom("large-a"));
  Send(3, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty());
}

// The other daemon decides whether the engine leaves.
TEST_F(RoomOnTheGpuTest, EngineWhoseRequestsComeElsewhereIsAskedToLeave) {
  PassSeconds(30);
  away_ = {"small-a"};
  Send(1, Ask("large", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  has_rank_of_far_away_ = true;
  EXPECT_TRUE(MakeRoom("small-a"));
  EXPECT_THAT(evicted_, ElementsAre("far-away"));
}

// It is asked again and again.
TEST_F(RoomOnTheGpuTest, EngineWhoseRequestsComeElsewhereIsAskedToRest) {
  has_rank_of_far_away_ = far_away_is_busy_ = true;
  away_ = {"small-a", "large-a"};
  PassSeconds(30);
  LetWait("small");
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(MakeRoom("small-a"));
    EXPECT_THAT(evicted_, ElementsAre("far-away"));
  }
  EXPECT_FALSE(service_->MakeKvRoom()) << "no busy engine rests for that";
}

TEST_F(RoomOnTheGpuTest, EngineLeavesForAnotherGpuIfItIsIdle) {
  PassSeconds(30);
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  evicted_.clear();
  EXPECT_FALSE(service_->LetGo("small-a"));
  EXPECT_THAT(evicted_, IsEmpty());
  Send(2, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty()) << "it rests";
  Send(1, wire::FinishedT());
  EXPECT_TRUE(service_->LetGo("small-a"));
  EXPECT_THAT(evicted_, ElementsAre("small-a"));
}

TEST_F(RoomOnTheGpuTest, EngineThatHasNoRequestsHereDecidesItself) {
  PassSeconds(1);
  evicted_.clear();
  EXPECT_TRUE(service_->LetGo("far-away"));
  EXPECT_THAT(evicted_, ElementsAre("far-away"));
}

TEST_F(AdmissionServiceTest, RequestWaitsForItsEngineToComeBack) {
  Hello();
  back_in_["small-a"] = 100'000;
  Send(1, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_THAT(needed_, ElementsAre("small-a"));
  EXPECT_TRUE(Hello().waits.at(1)->away);
  back_in_.clear();
  clock_.AdvanceNs(90'000'000);
  service_->Settle();
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_TRUE(verdict.admitted);
  EXPECT_EQ(verdict.waited_for, wire::WaitedFor::kActivation);
  EXPECT_EQ(verdict.waited_us, 90'000u);
  EXPECT_FALSE(Hello().waits.at(1)->away);
}

TEST_F(AdmissionServiceTest, RequestThatTheWayBackMakesLateIsRefusedAtOnce) {
  Hello();
  back_in_["small-a"] = 5'000'000;
  Send(1, Ask("small", 100));
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_FALSE(verdict.admitted);
  EXPECT_EQ(verdict.refusal, wire::Refusal::kDeadline);
  EXPECT_GE(verdict.predicted_ttft_ms, 5'000u);
  EXPECT_GE(verdict.retry_after_ms, 5'000u) << "it is not back before";
  EXPECT_THAT(needed_, ElementsAre("small-a")) << "for the next request";
}

// Bringing the engine back takes longer than the model's SLO, so only the next
// request would be answered.
TEST_F(RoomOnTheGpuTest, NoBusyEngineRestsForARequestThatWasRefused) {
  away_ = {"large-a"};
  PassSeconds(30);
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  EXPECT_FALSE(MakeRoom("large-a"));
}

TEST_F(RoomOnTheGpuTest, NoBusyEngineRestsForKv) {
  PassSeconds(30);
  Send(1, Ask("small", 100));
  Send(2, Ask("large", 100));
  EXPECT_FALSE(service_->MakeKvRoom());
}

TEST_F(AdmissionServiceTest, RunningRequestsOfAnEarlierDaemonTakeTheirKv) {
  ServeFromThePool();
  GreetWithARunningOne(9, 300, 1, 0);
  Send(10, Ask("small", 300));
  EXPECT_THAT(sent_, IsEmpty());
  Send(9, wire::FinishedT());
  EXPECT_TRUE(Verdict(10).admitted);
}

// The proxy never reported that its earlier requests ended, because it took
// this daemon for another one.
TEST_F(AdmissionServiceTest, ProxyThatGreetsAgainHasOnlyTheRequestsItNames) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 300));  // waits
  wire::HelloT hello = Greeting({"small-a"});
  hello.reset = true;
  Send(0, std::move(hello), 0);
  Next();
  EXPECT_EQ(Models().models[0]->engines[0]->running, 0u);
  EXPECT_EQ(Models().models[0]->queued, 0u);
  Send(2, Ask("small", 300));
  EXPECT_TRUE(Verdict(2).admitted);
}

TEST_F(AdmissionServiceTest, RunningRequestsAreAdoptedWithWhatTheyGenerated) {
  ServeFromThePool();
  Hello();
  GreetWithARunningOne(9, 100, 400, 300);
  EXPECT_EQ(Models().models[0]->engines[0]->held_tokens, 100u + 300 + 64 + 16);
}

TEST_F(AdmissionServiceTest, SilentProxyIsForgottenWithItsRequests) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  Verdict(1);
  Hello(true, "other");
  wire::SubmitT patient = Ask("small", 300);
  patient.slo_ttft_us = 10'000'000;
  Send(1, std::move(patient), kEpoch, "other");
  EXPECT_THAT(sent_, IsEmpty());
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs - 1);
  Hello(true, "other");
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
  clock_.AdvanceNs(1);
  service_->Settle();
  EXPECT_TRUE(Verdict(1).admitted) << "the other's";
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
}

// The proxy believes that the daemon still has everything that the proxy sent.
TEST_F(AdmissionServiceTest, ForgottenProxyIsAskedToGreetAgain) {
  Hello();
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs);
  service_->Settle();
  Send(0, Greeting({"small-a"}));
  const wire::MessageT message = Next();
  const wire::RefusedT* refused = message.body.AsRefused();
  ASSERT_NE(refused, nullptr);
  EXPECT_TRUE(refused->ungreeted);
  Hello();
  Send(0, Greeting({"small-a"}));
  EXPECT_NE(Next().body.AsWelcome(), nullptr) << "it is known again";
}

// The lost message may have been a verdict, which the proxy waits for.
TEST_F(AdmissionServiceTest, ProxyThatAMessageDoesNotReachIsForgotten) {
  Hello();
  reachable_ = false;
  Send(1, Ask("small", 100));
  reachable_ = true;
  EXPECT_LE(service_->NextWakeNs(), clock_.NowNs());
  service_->Settle();
  EXPECT_EQ(Models().models[0]->engines[0]->running, 0u);
  Send(2, Ask("small", 100));
  EXPECT_THAT(Refusal(), HasSubstr("has not greeted"));
}

TEST_F(AdmissionServiceTest, DrainedEngineFinishesWhatItHasAndGetsNothingNew) {
  Hello();
  Send(1, Ask("small", 100));
  Verdict(1);
  EXPECT_TRUE(Drain("small-a"));
  Send(2, Ask("small", 100));
  EXPECT_EQ(Verdict(2).refusal, wire::Refusal::kNoEngine) << "at once";
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
  EXPECT_TRUE(Models().models[0]->engines[0]->drains);
  EXPECT_TRUE(Drain("small-a", /*on=*/false));
  Send(3, Ask("small", 100));
  EXPECT_TRUE(Verdict(3).admitted);
}

TEST_F(AdmissionServiceTest, RequestsForAnEngineAreRefusedOnceThatIsDrained) {
  ServeFromThePool(200);
  Hello();
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty()) << "its KV is taken";
  EXPECT_TRUE(Drain(""));
  EXPECT_EQ(Verdict(2).refusal, wire::Refusal::kNoEngine);
}

TEST_F(AdmissionServiceTest, GoodbyeIsSaidToEveryProxy) {
  Hello();
  Hello(true, "another");
  EXPECT_THAT(service_->SayGoodbye(),
              ::testing::UnorderedElementsAre(kProxy, "another"));
  ASSERT_EQ(sent_.size(), 2u);
  for (const char* peer : {"another", kProxy}) {
    EXPECT_EQ(sent_.front().first, peer);
    EXPECT_NE(Next().body.AsGoodbye(), nullptr);
  }
}

TEST_F(AdmissionServiceTest, TroublesOfAnEngineAreShown) {
  ServeFromThePool();
  view_of_small_a_->token_bytes = 256;
  Hello();
  EXPECT_THAT(Models().models[0]->engines[0]->troubles, IsEmpty());
  view_of_small_a_->token_bytes = 512;
  wire::HelloT hello = Greeting({"small-a"});
  hello.engines[0]->trouble = "it serves another model";
  Send(0, std::move(hello), 0);
  Next();
  const auto troubles = Models().models[0]->engines[0]->troubles;
  ASSERT_EQ(troubles.size(), 2u);
  EXPECT_EQ(troubles[0], "it serves another model");
  EXPECT_THAT(troubles[1],
              HasSubstr("512 bytes of KV a token, and 256 is its model's"));
}

TEST_F(AdmissionServiceTest, TroublesAreShownWithTheirTime) {
  Hello();
  EXPECT_LT(Models().models[0]->engines[0]->silent_s, 0) << "it serves";
  const auto tell = [this](const std::string& trouble) {
    wire::HelloT hello = Greeting({"small-a"}, /*serves=*/false);
    hello.engines[0]->trouble = trouble;
    Send(0, std::move(hello), kEpoch);
    Next();
    clock_.AdvanceNs(2'000'000'000);
  };
  tell("it breaks off its answers");
  tell("it breaks off its answers");
  auto engine = std::move(Models().models[0]->engines[0]);
  ASSERT_EQ(engine->troubles_s.size(), 1u);
  EXPECT_EQ(engine->troubles_s[0], 4);
  EXPECT_EQ(engine->silent_s, 4);
  tell("it does not answer");
  engine = std::move(Models().models[0]->engines[0]);
  EXPECT_EQ(engine->troubles_s[0], 2) << "another one";
  EXPECT_EQ(engine->silent_s, 6);
}

// The daemon may start after the proxies, and hears of a trouble later than
// they do.
TEST_F(AdmissionServiceTest, TroublesHaveTheTimeThatTheProxySays) {
  clock_.AdvanceNs(60'000'000'000);
  Hello();
  wire::HelloT hello = Greeting({"small-a"}, /*serves=*/false);
  hello.engines[0]->trouble = "its name does not resolve";
  hello.engines[0]->trouble_s = 3;
  hello.engines[0]->silent_s = 5;
  Send(0, std::move(hello), kEpoch);
  Next();
  clock_.AdvanceNs(2'000'000'000);
  const auto engine = std::move(Models().models[0]->engines[0]);
  ASSERT_EQ(engine->troubles_s.size(), 1u);
  EXPECT_NEAR(engine->troubles_s[0], 5, 1e-6);
  EXPECT_NEAR(engine->silent_s, 7, 1e-6);
}

TEST_F(AdmissionServiceTest, OnlyAGreetingWithoutEpochShowsThatGoodbyeIsKnown) {
  const auto knows = [](uint64_t epoch, auto body) {
    return AdmissionService::KnowsOfGoodbye(
        wire::Encode(epoch, 0, std::move(body)));
  };
  EXPECT_TRUE(knows(0, wire::HelloT()));
  EXPECT_FALSE(knows(kEpoch, wire::HelloT())) << "sent before";
  EXPECT_FALSE(knows(0, wire::ModelsQueryT()));
  EXPECT_FALSE(AdmissionService::KnowsOfGoodbye("garbage"));
}

TEST_F(AdmissionServiceTest, UnscheduledRequestsAreSummedOverProxies) {
  for (const char* peer : {kProxy, "another"}) {
    wire::HelloT hello = Greeting({"small-a"});
    hello.unscheduled = 3;
    Send(0, std::move(hello), 0, peer);
    Next();
  }
  EXPECT_EQ(Models().unscheduled, 6u);
}

TEST_F(AdmissionServiceTest, AnswerThatShowsNoFirstTokenCountsByItsProfile) {
  Hello();
  for (const auto& [id, ms] : {std::pair{1u, 10}, {2u, 20'000}}) {
    Send(id, Ask("small", 100));
    EXPECT_TRUE(Verdict(id).admitted);
    clock_.AdvanceNs(ms * 1'000'000ull);
    Hello();
    Finish(id, 10);
  }
  EXPECT_EQ(Models().models[0]->on_time, 1u);
  EXPECT_EQ(Models().models[0]->late, 1u);
}

TEST_F(AdmissionServiceTest, CountsGoOnInTheServiceOfAnotherFleet) {
  Hello();
  Send(1, Ask("small", 100));
  Verdict(1);
  Send(1, wire::FirstTokenT());
  config::Fleet other = TwoModels();
  other.policy = "fcfs";
  auto next = ServiceOf(other, kEpoch + 1);
  next->CountOnFrom(*service_);
  service_ = std::move(next);
  EXPECT_EQ(Models().models[0]->admitted, 1u);
  EXPECT_EQ(Models().models[0]->on_time, 1u);
  EXPECT_EQ(Models().models[0]->queued, 0u);
}

// Slow first tokens teach κ; short answers teach the length of answers.
TEST_F(AdmissionServiceTest, LearntFiguresGoOnByEngineAndModel) {
  Hello();
  for (uint64_t id = 1; id <= 20; ++id) {
    Send(id, Ask("small", 100));
    Verdict(id);
    clock_.AdvanceNs(900'000'000);
    Hello();
    Send(id, wire::FirstTokenT());
    Finish(id, 1);
  }
  const double kappa = Models().models[0]->engines[0]->kappa;
  const double output = service_->WhatWasLearnt().expected_output.at("small");
  EXPECT_GT(kappa, 2);
  EXPECT_LT(output, 200);
  config::Fleet other = TwoModels();
  std::swap(other.models[0], other.models[1]);
  for (const bool from_file : {false, true}) {
    auto next = ServiceOf(other, kEpoch + 1);
    if (from_file) {
      next->LearnFrom(ReadLearnt(TextOf(service_->WhatWasLearnt())));
    } else {
      next->CountOnFrom(*service_);
    }
    service_ = std::move(next);
    Hello();
    EXPECT_EQ(Models().models[1]->name, "small");
    EXPECT_EQ(Models().models[1]->engines[0]->kappa, kappa);
    EXPECT_EQ(service_->WhatWasLearnt().expected_output.at("small"), output);
  }
  other.models[1].profile.emplace();
  auto next = ServiceOf(other, kEpoch + 1);
  next->CountOnFrom(*service_);
  service_ = std::move(next);
  Hello();
  EXPECT_EQ(Models().models[1]->engines[0]->kappa, 1) << "of another profile";
}

TEST_F(AdmissionServiceTest, DrainOfAnUnknownEngineIsAnError) {
  EXPECT_FALSE(Drain("far-away", /*on=*/false));
  EXPECT_THAT(Refusal(), HasSubstr("no engine \"far-away\"; there are "));
}

TEST_F(AdmissionServiceTest, DrainedGpuWithoutAPlanTakesNothing) {
  Hello();
  EXPECT_TRUE(EmptyTheGpu());
  Send(1, Ask("small", 100));
  EXPECT_EQ(Verdict(1).refusal, wire::Refusal::kNoEngine);
  EXPECT_TRUE(Drain("", /*on=*/false));
  Send(2, Ask("small", 100));
  EXPECT_TRUE(Verdict(2).admitted);
}

TEST_F(AdmissionServiceTest, DrainedGpuServesUntilTheFirstPlanMovesItsModels) {
  config::Fleet planned = TwoModels();
  planned.planner.on = true;
  planned.engines[0].is_place = true;  // "small-a"
  service_ = ServiceOf(planned, kEpoch);
  Hello();
  EXPECT_TRUE(EmptyTheGpu());
  EXPECT_TRUE(drained_.empties());
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("large", 100));
  EXPECT_EQ(Verdict(2).refusal, wire::Refusal::kNoEngine) << "no plan moves it";
}

TEST_F(AdmissionServiceTest, MistakesOfAProxyAreNamed) {
  Hello();
  Send(1, Ask("unknown", 1));
  EXPECT_THAT(Refusal(), HasSubstr("no model \"unknown\""));
  Send(3, wire::WelcomeT());
  EXPECT_THAT(Refusal(), HasSubstr("does not take this"));
  service_->Handle(kProxy, "rubbish");
  EXPECT_THAT(Refusal(), HasSubstr("not a message of this protocol"));
}

TEST_F(AdmissionServiceTest, ItWakesForSilentPeersAndForDeadlines) {
  EXPECT_EQ(service_->NextWakeNs(), UINT64_MAX);
  Hello();
  EXPECT_EQ(service_->NextWakeNs(),
            clock_.NowNs() + AdmissionService::kPeerPatienceNs);
  Hello(false);
  Send(1, Ask("small", 100));
  EXPECT_LE(service_->NextWakeNs(), clock_.NowNs() + 500'000'000);
}

}  // namespace
}  // namespace fineserve::admission
