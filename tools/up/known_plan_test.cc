#include "tools/up/known_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/wire/message.h"

namespace fineserve::fsctl {
namespace {

using wire::PlaceState;

config::FleetEngine Place(const std::string& name) {
  config::FleetEngine engine;
  engine.name = name;
  engine.is_place = true;
  return engine;
}

wire::PlanT Plan(
    uint64_t number,
    const std::vector<std::pair<std::string, PlaceState>>& places) {
  wire::PlanT plan;
  plan.number = number;
  for (const auto& [name, state] : places) {
    plan.places.push_back(std::make_unique<wire::PlannedPlaceT>());
    plan.places.back()->engine = name;
    plan.places.back()->state = state;
  }
  return plan;
}

TEST(KnownPlanTest, PlaceRunsUnlessItIsOff) {
  KnownPlan known;
  EXPECT_TRUE(known.Learn(Plan(7, {{"start", PlaceState::kStart},
                                   {"serve", PlaceState::kServe},
                                   {"retire", PlaceState::kRetire},
                                   {"off", PlaceState::kOff}})));
  EXPECT_EQ(known.number(), 7u);
  for (const char* name : {"start", "serve", "retire"}) {
    EXPECT_EQ(known.Of(Place(name)), Wish::kRun) << name;
  }
  EXPECT_EQ(known.Of(Place("off")), Wish::kStop);
  EXPECT_EQ(known.Of(Place("nobody named it")), Wish::kUnknown);
}

TEST(KnownPlanTest, BeforeAPlanNothingIsKnownOfAPlace) {
  EXPECT_EQ(KnownPlan().Of(Place("chat-0")), Wish::kUnknown);
}

TEST(KnownPlanTest, EngineThatIsNoPlaceRunsWhateverThePlanSays) {
  config::FleetEngine fixed = Place("fixed");
  fixed.is_place = false;
  KnownPlan known;
  EXPECT_EQ(known.Of(fixed), Wish::kRun);
  known.Learn(Plan(1, {{"fixed", PlaceState::kOff}}));
  EXPECT_EQ(known.Of(fixed), Wish::kRun);
}

TEST(KnownPlanTest, HigherNumberHoldsWhoeverIsHeardLast) {
  KnownPlan known;
  EXPECT_TRUE(known.Learn(Plan(2, {{"a", PlaceState::kServe}})));
  EXPECT_FALSE(known.Learn(Plan(1, {{"b", PlaceState::kServe}})));
  EXPECT_FALSE(known.Learn(Plan(2, {{"b", PlaceState::kServe}})));
  EXPECT_EQ(known.Of(Place("a")), Wish::kRun);
  EXPECT_EQ(known.Of(Place("b")), Wish::kUnknown);
  EXPECT_TRUE(known.Learn(Plan(3, {{"a", PlaceState::kOff}})));
  EXPECT_EQ(known.Of(Place("a")), Wish::kStop);
}

}  // namespace
}  // namespace fineserve::fsctl
