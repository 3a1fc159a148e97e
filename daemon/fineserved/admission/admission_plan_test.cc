// Tests of the leader's plan: its effect on requests, and the reports to the
// leader.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "daemon/fineserved/admission/admission_fixture.h"

namespace fineserve::admission {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::PlaceState;

class PlanOfAdmissionTest : public AdmissionServiceTest {
 protected:
  // Returns a notice of a plan that names only "small-a".
  static wire::PlanNoticeT Notice(uint64_t number, PlaceState state) {
    wire::PlanNoticeT notice;
    notice.plan = std::make_unique<wire::PlanT>();
    notice.plan->number = number;
    notice.plan->leader = "GPU-9";
    notice.plan->places.push_back(std::make_unique<wire::PlannedPlaceT>());
    notice.plan->places[0]->engine = "small-a";
    notice.plan->places[0]->state = state;
    return notice;
  }
  wire::ReportT Answer(wire::PlanNoticeT notice) {
    service_->Handle("leader", wire::Encode(0, 4, std::move(notice)));
    const wire::MessageT message = Next();
    EXPECT_EQ(message.request, 4u);
    const wire::ReportT* report = message.body.AsReport();
    EXPECT_NE(report, nullptr);
    service_->Settle();
    return report == nullptr ? wire::ReportT() : *report;
  }
  wire::ReportT Plan(uint64_t number, PlaceState state) {
    return Answer(Notice(number, state));
  }
  wire::PlanStateT State() {
    Send(0, wire::PlanQueryT(), 0, "fsctl");
    const wire::MessageT message = Next();
    const wire::PlanStateT* state = message.body.AsPlanState();
    EXPECT_NE(state, nullptr);
    return state == nullptr ? wire::PlanStateT() : *state;
  }
};

TEST_F(PlanOfAdmissionTest, RetiredPlaceGetsNothingNewAndFinishesWhatItHas) {
  Hello();
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  Plan(1, PlaceState::kRetire);
  Send(2, Ask("small", 100));
  const wire::VerdictT verdict = Verdict(2);
  EXPECT_EQ(verdict.refusal, wire::Refusal::kNoEngine)
      << "at once, so that it can go elsewhere";
  const auto figures = std::move(Models().models[0]->engines[0]);
  EXPECT_EQ(figures->running, 1u);
  EXPECT_FALSE(figures->drains) << "that is the operator's word";
  Send(1, wire::FinishedT());
  EXPECT_EQ(Models().models[0]->engines[0]->running, 0u);
  Send(3, Ask("large", 100));
  EXPECT_TRUE(Verdict(3).admitted) << "the plan does not name its engine";
}

TEST_F(PlanOfAdmissionTest, RequestsForAPlaceThatRetiresAreSentAway) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 300));
  wire::SubmitT patient = Ask("small", 300);
  patient.degrade_ok = true;
  Send(3, std::move(patient));
  EXPECT_THAT(sent_, IsEmpty()) << "they wait";
  Plan(1, PlaceState::kRetire);
  EXPECT_EQ(Verdict(2).refusal, wire::Refusal::kNoEngine);
  EXPECT_EQ(Verdict(3).refusal, wire::Refusal::kNoEngine);
  EXPECT_EQ(Models().models[0]->queued, 0u);
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
}

TEST_F(PlanOfAdmissionTest, PlaceThatStartsLetsRequestsWaitUntilItServes) {
  Hello();
  Plan(1, PlaceState::kStart);
  Send(1, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty());
  Plan(2, PlaceState::kServe);
  EXPECT_TRUE(Verdict(1).admitted);
}

TEST_F(PlanOfAdmissionTest, PlaceThatIsOffRestsOffTheGpuUntilItStarts) {
  config::Fleet fleet = TwoModels();
  fleet.engines[0].may_evict = true;
  service_ = ServiceOf(fleet, kEpoch);
  const auto seconds_pass = [&] {
    for (int s = 0; s < 3; ++s) {
      clock_.AdvanceNs(1'000'000'000);
      Hello();
    }
  };
  Hello();
  Plan(1, PlaceState::kServe);
  seconds_pass();
  EXPECT_THAT(evicted_, IsEmpty());
  Plan(2, PlaceState::kOff);
  seconds_pass();
  EXPECT_THAT(evicted_, Contains("small-a"));
  EXPECT_THAT(State().away, IsEmpty()) << "it has not left yet";
  away_.insert("small-a");
  seconds_pass();
  EXPECT_THAT(State().away, ElementsAre("small-a"));
  EXPECT_THAT(needed_, IsEmpty());
  Plan(3, PlaceState::kStart);
  EXPECT_THAT(needed_, ElementsAre("small-a"));
}

TEST_F(PlanOfAdmissionTest, PlaceThatIsToEndIsNotCopiedToTheHost) {
  config::Fleet fleet = TwoModels();
  fleet.engines[0].may_evict = true;
  service_ = ServiceOf(fleet, kEpoch);
  Hello();
  wire::PlanNoticeT notice = Notice(1, PlaceState::kOff);
  notice.plan->places[0]->no_rest = true;
  Answer(std::move(notice));
  for (int s = 0; s < 3; ++s) {
    clock_.AdvanceNs(1'000'000'000);
    Hello();
  }
  EXPECT_THAT(evicted_, IsEmpty());
}

TEST_F(PlanOfAdmissionTest, ReportSaysWhichEnginesHaveAProcessHere) {
  const wire::ReportT report = Plan(1, PlaceState::kOff);
  EXPECT_EQ(report.host_bytes, 70'000u);
  ASSERT_FALSE(report.engines.empty());
  for (const auto& engine : report.engines) {
    EXPECT_EQ(engine->here, engine->name != "far-away") << engine->name;
    EXPECT_EQ(engine->process_bytes, engine->name.size());
  }
}

TEST_F(PlanOfAdmissionTest, DrainedPlaceTakesNothingThoughThePlanLetsIn) {
  Hello();
  EXPECT_TRUE(Drain("small-a"));
  Plan(1, PlaceState::kServe);
  Send(1, Ask("small", 100));
  EXPECT_EQ(Verdict(1).refusal, wire::Refusal::kNoEngine);
  EXPECT_TRUE(Models().models[0]->engines[0]->drains);
}

TEST_F(PlanOfAdmissionTest, DrainedGpuServesUntilThePlanHasMovedItsModels) {
  Hello();
  Plan(1, PlaceState::kServe);
  EXPECT_TRUE(EmptyTheGpu());
  EXPECT_TRUE(Models().models[0]->engines[0]->drains);
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  EXPECT_TRUE(Plan(2, PlaceState::kRetire).drained);
  EXPECT_TRUE(Drain("", /*on=*/false));
  EXPECT_FALSE(Plan(3, PlaceState::kServe).drained);
  EXPECT_FALSE(Models().models[0]->engines[0]->drains);
}

TEST_F(PlanOfAdmissionTest, OlderPlanIsRefusedAndChangesNothing) {
  Hello();
  EXPECT_EQ(Plan(7, PlaceState::kServe).plan_number, 7u);
  Send(4, Notice(6, PlaceState::kRetire), 0, "leader");
  EXPECT_THAT(Refusal(), HasSubstr("plan 6 is older than plan 7"));
  EXPECT_EQ(Next().body.AsReport()->plan_number, 7u)
      << "so that a leader behind its daemons learns it";
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  EXPECT_EQ(Plan(7, PlaceState::kServe).plan_number, 7u)
      << "the same one again";
}

TEST_F(PlanOfAdmissionTest, ProxiesHearThePlanWithTheirWelcome) {
  Send(0, Greeting({"small-a"}), 0);
  EXPECT_EQ(Next().body.AsWelcome()->plan, nullptr);
  Plan(3, PlaceState::kStart);
  Send(0, Greeting({"small-a"}));
  const wire::MessageT message = Next();
  ASSERT_NE(message.body.AsWelcome(), nullptr);
  ASSERT_NE(message.body.AsWelcome()->plan, nullptr);
  EXPECT_EQ(message.body.AsWelcome()->plan->number, 3u);
  EXPECT_EQ(message.body.AsWelcome()->plan->places[0]->engine, "small-a");
}

TEST_F(PlanOfAdmissionTest, NewServiceHearsNoProxyUntilAllHadTimeToGreet) {
  Hello();
  EXPECT_EQ(Answer({}).proxies, 0u);
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs - 1 - clock_.NowNs());
  Hello();
  EXPECT_EQ(Answer({}).proxies, 0u);
  clock_.AdvanceNs(1);
  EXPECT_EQ(Answer({}).proxies, 1u);
}

// The proxy's second greeting lists the requests that it runs. Between the two
// greetings, an engine that runs them seems empty.
TEST_F(PlanOfAdmissionTest, ProxyIsNotHeardUntilItHasToldWhatItRuns) {
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs);
  Greet(0, /*reset=*/false);
  EXPECT_EQ(Answer({}).proxies, 0u);
  EXPECT_TRUE(Models().counting);
  Greet(kEpoch, /*reset=*/true);
  EXPECT_EQ(Answer({}).proxies, 1u);
  EXPECT_FALSE(Models().counting);
}

// The proxy let requests run while it heard nothing from this daemon.
TEST_F(PlanOfAdmissionTest, ProxyThatWasAloneIsNotHeardUntilItHasToldAgain) {
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs);
  Hello();
  Hello(true, "other");
  EXPECT_EQ(Answer({}).proxies, 2u);
  Greet(0, /*reset=*/false);
  EXPECT_EQ(Answer({}).proxies, 0u)
      << "the other one does not know its requests";
  Greet(kEpoch, /*reset=*/false);
  EXPECT_EQ(Answer({}).proxies, 0u);
  Greet(kEpoch, /*reset=*/true);
  EXPECT_EQ(Answer({}).proxies, 2u);
}

TEST_F(PlanOfAdmissionTest, ReportHasTheOldestPlanOfItsProxies) {
  EXPECT_EQ(Answer({}).plan_of_proxies, UINT64_MAX);
  const auto greet = [this](const std::string& peer, uint64_t plan) {
    wire::HelloT hello = Greeting({"small-a"});
    hello.plan_number = plan;
    Send(0, std::move(hello), 0, peer);
    Next();
  };
  greet("one", 7);
  greet("two", 6);
  EXPECT_EQ(Answer({}).plan_of_proxies, 6u);
  greet("two", 8);
  EXPECT_EQ(Answer({}).plan_of_proxies, 7u);
  Hello(true, "of a former release");
  EXPECT_EQ(Answer({}).plan_of_proxies, 7u);
}

TEST_F(PlanOfAdmissionTest, ReportHasTheGpuItsEnginesAndItsProxies) {
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs);
  Hello();
  Hello(true, "other");
  Send(1, Ask("large", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  const wire::ReportT report = Answer({});
  EXPECT_EQ(report.gpu, "GPU-1234");
  EXPECT_EQ(report.memory_bytes, 80'000u);
  EXPECT_EQ(report.pool_bytes, 10'000u);
  EXPECT_EQ(report.used_bytes, 3'000u);
  EXPECT_EQ(report.plan_number, 0u);
  EXPECT_EQ(report.proxies, 2u);
  ASSERT_EQ(report.engines.size(), 2u) << "those of this GPU";
  EXPECT_EQ(report.engines[0]->name, "small-a");
  EXPECT_TRUE(report.engines[0]->serves);
  EXPECT_EQ(report.engines[0]->running, 0u);
  EXPECT_EQ(report.engines[1]->name, "large-a");
  EXPECT_EQ(report.engines[1]->running, 1u);
  EXPECT_THAT(report.demand, IsEmpty());
}

TEST_F(PlanOfAdmissionTest, ReportHasWhatProxiesWereAskedSinceTheyGreeted) {
  const auto greet = [this](uint64_t arrived) {
    wire::HelloT hello = Greeting({"small-a"});
    hello.demand.push_back(std::make_unique<wire::ModelDemandT>());
    hello.demand[0]->model = "large";
    hello.demand[0]->arrived = arrived;
    Send(0, std::move(hello), 0);
    Next();
  };
  greet(100);
  greet(104);
  const auto demand = std::move(Answer({}).demand);
  ASSERT_EQ(demand.size(), 1u);
  EXPECT_EQ(demand[0]->model, "large");
  EXPECT_EQ(demand[0]->arrived, 4u);
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs);
  service_->Settle();
  greet(200);
  EXPECT_EQ(Answer({}).demand[0]->arrived, 4u) << "it was forgotten in between";
}

class LeaderOfTest final : public LeaderSeat {
 public:
  void Describe(wire::PlanStateT* state) const override {
    state->move = "chat-0 to chat-1";
  }
  absl::Status Steer(const wire::SteerT& steer) override {
    if (!steer.pin.empty()) return absl::NotFoundError("no such model");
    frozen = steer.freeze;
    return absl::OkStatus();
  }

  bool frozen = false;
};

TEST_F(PlanOfAdmissionTest,
       WithoutALeaderHereThePlanIsShownAndSteeringRefused) {
  EXPECT_EQ(State().plan, nullptr);
  Send(2, wire::SteerT(), 0, "fsctl");
  EXPECT_THAT(Refusal(), HasSubstr("the fleet has no [planner]"));
  Plan(3, PlaceState::kServe);
  const wire::PlanStateT state = State();
  ASSERT_NE(state.plan, nullptr);
  EXPECT_EQ(state.plan->number, 3u);
  EXPECT_FALSE(state.leads);
  Send(2, wire::SteerT(), 0, "fsctl");
  EXPECT_THAT(Refusal(), HasSubstr("the leader is GPU-9"));
}

TEST_F(PlanOfAdmissionTest, ReasonWhyNoDaemonPlansHereIsShown) {
  plans_.SetTrouble("another fleet is led in this folder");
  ASSERT_EQ(State().troubles.size(), 1u);
  EXPECT_EQ(State().troubles[0], "another fleet is led in this folder");
  Send(2, wire::SteerT(), 0, "fsctl");
  EXPECT_EQ(Refusal(), "another fleet is led in this folder");
  plans_.SetTrouble("");
  EXPECT_TRUE(State().troubles.empty());
}

TEST_F(PlanOfAdmissionTest, LeaderHereIsAskedAndSteered) {
  LeaderOfTest leader;
  plans_.SetLeader(&leader);
  EXPECT_TRUE(State().leads);
  EXPECT_EQ(State().move, "chat-0 to chat-1");
  wire::SteerT steer;
  steer.freeze = true;
  Send(2, std::move(steer), 0, "fsctl");
  EXPECT_NE(Next().body.AsDone(), nullptr);
  EXPECT_TRUE(leader.frozen);
  steer = {};
  steer.pin = "unknown";
  Send(2, std::move(steer), 0, "fsctl");
  EXPECT_EQ(Refusal(), "no such model");
}

}  // namespace
}  // namespace fineserve::admission
