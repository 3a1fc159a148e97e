#include "tools/up/wish.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/contract/wire/message.h"

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

TEST(WishTest, PlaceRunsUnlessItIsOff) {
  wire::NewestPlan known;
  EXPECT_TRUE(Learn(Plan(7, {{"start", PlaceState::kStart},
                             {"serve", PlaceState::kServe},
                             {"retire", PlaceState::kRetire},
                             {"off", PlaceState::kOff}}),
                    &known));
  EXPECT_EQ(known.number(), 7u);
  for (const char* name : {"start", "serve", "retire"}) {
    EXPECT_EQ(WishOf(known, Place(name)), Wish::kRun) << name;
  }
  EXPECT_EQ(WishOf(known, Place("off")), Wish::kStop);
  EXPECT_EQ(WishOf(known, Place("nobody named it")), Wish::kUnknown);
}

TEST(WishTest, BeforeAPlanNothingIsKnownOfAPlace) {
  EXPECT_EQ(WishOf(wire::NewestPlan(), Place("chat-0")), Wish::kUnknown);
}

TEST(WishTest, EngineThatIsNoPlaceRunsWhateverThePlanSays) {
  config::FleetEngine fixed = Place("fixed");
  fixed.is_place = false;
  wire::NewestPlan known;
  EXPECT_EQ(WishOf(known, fixed), Wish::kRun);
  Learn(Plan(1, {{"fixed", PlaceState::kOff}}), &known);
  EXPECT_EQ(WishOf(known, fixed), Wish::kRun);
}

// A leader could not continue after a plan with such a number.
TEST(WishTest, NumberThatNoPlanHasIsNotFollowed) {
  wire::NewestPlan known;
  EXPECT_FALSE(Learn(Plan(~uint64_t{0}, {{"a", PlaceState::kOff}}), &known));
  EXPECT_EQ(WishOf(known, Place("a")), Wish::kUnknown);
  EXPECT_TRUE(Learn(Plan(1, {{"a", PlaceState::kServe}}), &known));
}

TEST(WishTest, HigherNumberHoldsWhoeverIsHeardLast) {
  wire::NewestPlan known;
  EXPECT_TRUE(Learn(Plan(2, {{"a", PlaceState::kServe}}), &known));
  EXPECT_FALSE(Learn(Plan(1, {{"b", PlaceState::kServe}}), &known));
  EXPECT_FALSE(Learn(Plan(2, {{"b", PlaceState::kServe}}), &known));
  EXPECT_EQ(WishOf(known, Place("a")), Wish::kRun);
  EXPECT_EQ(WishOf(known, Place("b")), Wish::kUnknown);
  EXPECT_TRUE(Learn(Plan(3, {{"a", PlaceState::kOff}}), &known));
  EXPECT_EQ(WishOf(known, Place("a")), Wish::kStop);
}

}  // namespace
}  // namespace fineserve::fsctl
