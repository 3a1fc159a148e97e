// Tests how FleetAdmission applies the leader's plan, and what it counts for
// it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/proxy/admission/fleet_admission.h"
#include "daemon/proxy/admission/fleet_admission_fixture.h"

namespace fineserve::proxy {
namespace {

using Health = DaemonAdmission::Health;
using ::testing::ElementsAre;
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
  // The model's counts in the next greeting to the GPU's daemon.
  wire::ModelDemandT ToldDemand(const std::string& gpu) {
    clock_.AdvanceNs(DaemonAdmission::kHelloNs);
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
  gpus_.at("A")->SetHealth("a2", DaemonAdmission::Health::kDoesNot);
  Submit(Request());
  EXPECT_EQ(verdicts_.back().second.engine, "a1") << "the other one is down";
}

TEST_F(FleetPlanTest, EveryDaemonHearsTheDemandOfTheWholeFleet) {
  UseTwo(1, 0);
  EXPECT_EQ(ToldDemand("A").model, "");
  Submit(Request(10));
  Decide("A", last_, wire::Refusal::kQueueFull);
  Decide("B", last_);
  admission_->FirstToken(last_);
  admission_->Finished(last_, 10, 5, Outcome::kDone);
  for (const std::string gpu : {"A", "B"}) {
    const wire::ModelDemandT demand = ToldDemand(gpu);
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
  EXPECT_EQ(ToldDemand("A").late, 1u);
  Submit(Request());
  admission_->Cancel(last_);
  EXPECT_EQ(ToldDemand("A").late, 1u);
  EXPECT_EQ(ToldDemand("A").arrived, 2u);
  AdmissionRequest nowhere = Request();
  nowhere.model = "idle";
  Submit(nowhere);
  const wire::ModelDemandT idle = ToldDemand("A");
  EXPECT_EQ(idle.model, "idle");
  EXPECT_EQ(idle.arrived, 1u);
  EXPECT_EQ(idle.late, 1u) << "no engine has it";
  AdmissionRequest unknown = Request();
  unknown.model = "a name that a client made up";
  Submit(unknown);
  ToldDemand("A");
  EXPECT_EQ(hellos_["A"].demand.size(), 2u);
}

}  // namespace
}  // namespace fineserve::proxy
