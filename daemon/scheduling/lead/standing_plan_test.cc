#include "daemon/scheduling/lead/standing_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "daemon/scheduling/lead/lead_fixture.h"

namespace fineserve::lead {
namespace {

StandingPlan Full() {
  StandingPlan plan;
  plan.number = 12;
  plan.term = 42;
  plan.places = {{"a-0", PlaceState::kServe, 2.5},
                 {"a-1", PlaceState::kStart, 0},
                 {"b-0", PlaceState::kRetire, 0},
                 {"b-1", PlaceState::kOff, 0, /*no_rest=*/true}};
  plan.move = Move{"a", "a-1", "a-0", "\"more\" room"};
  plan.frozen = true;
  plan.frozen_at = "2026-01-02T03:04:05Z";
  plan.applies = true;
  plan.pins = {{"a", "GPU-1"}};
  return plan;
}

TEST(StandingPlanTest, TextGivesBackTheSamePlan) {
  const auto read = ParsePlan(PlanText(Full()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Full());
  const auto empty = ParsePlan(PlanText(StandingPlan()));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(*empty, StandingPlan());
}

// If a move is from or to a lost GPU, the end that is left serves.
TEST(StandingPlanTest, PlaceOnALostGpuIsOffAndItsMoveEnds) {
  config::Fleet fleet = FleetOf({1, 1}, 2);
  const std::string first = fleet.Engine("a-0")->gpu;
  const std::string second = fleet.Engine("a-1")->gpu;
  StandingPlan plan = Full();
  ASSERT_TRUE(TakeOff(fleet, {first}, &plan));
  EXPECT_FALSE(plan.move);
  EXPECT_EQ(plan.StateOf("a-0"), PlaceState::kOff);
  EXPECT_EQ(plan.Find("a-0")->target_rate, 0);
  EXPECT_EQ(plan.StateOf("a-1"), PlaceState::kServe);
  EXPECT_EQ(plan.StateOf("b-0"), PlaceState::kOff);
  EXPECT_FALSE(TakeOff(fleet, {first}, &plan)) << "nothing is left to take";

  plan = Full();
  ASSERT_TRUE(TakeOff(fleet, {second}, &plan));
  EXPECT_EQ(plan.StateOf("a-0"), PlaceState::kServe);
  EXPECT_EQ(plan.StateOf("a-1"), PlaceState::kOff);
  EXPECT_FALSE(TakeOff(fleet, {}, &plan));
}

TEST(StandingPlanTest, OtherMessageIsAnError) {
  const std::string whole = PlanText(Full());
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"),
        whole.substr(0, whole.size() / 2),
        std::string(R"({"number": -1, "frozen": 3})")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParsePlan(text).status())) << text;
  }
  std::string wrong = whole;
  wrong.replace(wrong.find("retire"), 6, "retyre");
  EXPECT_TRUE(absl::IsInvalidArgument(ParsePlan(wrong).status()));
}

TEST(StandingPlanTest, FollowsTheFleetFile) {
  StandingPlan plan;
  plan.places = {{"a-0", PlaceState::kServe, 1},
                 {"z-0", PlaceState::kServe, 1}};
  Adapt(FleetOf({1, 1}, 2), &plan);
  ASSERT_EQ(plan.places.size(), 4u);
  EXPECT_EQ(plan.StateOf("a-0"), PlaceState::kServe);
  EXPECT_EQ(plan.StateOf("b-1"), PlaceState::kOff);
  EXPECT_EQ(plan.Find("z-0"), nullptr);
}

TEST(StandingPlanTest, MoveOfAPlaceThatIsGoneEnds) {
  StandingPlan plan;
  plan.places = {{"a-0", PlaceState::kRetire, 0},
                 {"a-9", PlaceState::kServe, 1}};
  plan.move = Move{"a", "a-9", "a-0", ""};
  Adapt(FleetOf({1}, 2), &plan);
  EXPECT_FALSE(plan.move);
  EXPECT_EQ(plan.StateOf("a-0"), PlaceState::kServe);
}

TEST(StandingPlanTest, TargetServesIfItsSourceIsGone) {
  StandingPlan plan;
  plan.places = {{"a-0", PlaceState::kStart, 0},
                 {"a-9", PlaceState::kServe, 1}};
  plan.move = Move{"a", "a-0", "a-9", ""};
  Adapt(FleetOf({1}, 2), &plan);
  EXPECT_FALSE(plan.move);
  EXPECT_EQ(plan.StateOf("a-0"), PlaceState::kServe);
}

TEST(StandingPlanTest, HistoryLineNamesWhatIsNotOff) {
  EXPECT_EQ(HistoryLine(Full(), "2026-01-02T03:04:05Z", "why"),
            R"({"number":12,"places":{"a-0":"serve","a-1":"start",)"
            R"("b-0":"retire"},"time":"2026-01-02T03:04:05Z","why":"why"})");
}

}  // namespace
}  // namespace fineserve::lead
