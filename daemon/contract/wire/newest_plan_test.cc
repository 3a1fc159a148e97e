#include "daemon/contract/wire/newest_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "daemon/contract/wire/message.h"

namespace fineserve::wire {
namespace {

using ::testing::HasSubstr;

PlanT PlanOf(uint64_t number, const std::string& engine, PlaceState state,
             double target_rate = 1) {
  PlanT plan;
  plan.number = number;
  plan.leader = "GPU-1";
  plan.places.push_back(std::make_unique<PlannedPlaceT>());
  plan.places[0]->engine = engine;
  plan.places[0]->state = state;
  plan.places[0]->target_rate = target_rate;
  return plan;
}

TEST(NewestPlanTest, ForgottenPlanLeavesEnginesToTheFleetFile) {
  NewestPlan newest;
  ASSERT_TRUE(newest.Take(PlanOf(7, "a", PlaceState::kOff)).ok());
  EXPECT_FALSE(newest.LetsIn("a"));
  newest.Forget();
  EXPECT_TRUE(newest.LetsIn("a"));
  EXPECT_EQ(newest.plan(), nullptr);
  EXPECT_TRUE(newest.Take(PlanOf(1, "a", PlaceState::kServe)).ok());
}

TEST(NewestPlanTest, TargetRateIsThePlansWhereItNamesTheEngine) {
  NewestPlan newest;
  EXPECT_EQ(newest.TargetRate("a", 3), 3);
  ASSERT_TRUE(newest.Take(PlanOf(7, "a", PlaceState::kServe, 2)).ok());
  EXPECT_EQ(newest.TargetRate("a", 3), 2);
  EXPECT_EQ(newest.TargetRate("b", 3), 3);
  ASSERT_TRUE(newest.Take(PlanOf(8, "a", PlaceState::kRetire, 2)).ok());
  EXPECT_EQ(newest.TargetRate("a", 3), 0);
}

// A leader from before contexts and host memory were counted does not say
// whether a place may rest.
TEST(NewestPlanTest, PlaceMayRestUnlessThePlanHasItEnd) {
  NewestPlan newest;
  EXPECT_TRUE(newest.MayRest("a"));
  ASSERT_TRUE(newest.Take(PlanOf(7, "a", PlaceState::kOff)).ok());
  EXPECT_TRUE(newest.MayRest("a"));
  PlanT plan = PlanOf(8, "a", PlaceState::kOff);
  plan.places[0]->no_rest = true;
  ASSERT_TRUE(newest.Take(plan).ok());
  EXPECT_FALSE(newest.MayRest("a"));
  EXPECT_TRUE(newest.MayRest("b"));
}

TEST(NewestPlanTest, NumberThatNoPlanCouldExceedIsRefused) {
  NewestPlan newest;
  EXPECT_TRUE(absl::IsInvalidArgument(
      newest.Take(PlanOf(UINT64_MAX, "a", PlaceState::kServe))));
}

TEST(NewestPlanTest, NoNumberOfAnOlderTermIsHighEnough) {
  NewestPlan newest;
  PlanT plan = PlanOf(7, "a", PlaceState::kServe);
  plan.term = 5;
  ASSERT_TRUE(newest.Take(plan).ok());
  plan = PlanOf(1000, "a", PlaceState::kOff);
  for (const uint64_t older : {0, 4}) {
    plan.term = older;
    const absl::Status s = newest.Take(plan);
    EXPECT_TRUE(absl::IsFailedPrecondition(s));
    EXPECT_THAT(std::string(s.message()), HasSubstr("plan 7 of term 5"));
  }
  EXPECT_TRUE(newest.LetsIn("a"));
  plan = PlanOf(2, "a", PlaceState::kOff);
  plan.term = 6;
  ASSERT_TRUE(newest.Take(plan).ok());
  EXPECT_FALSE(newest.LetsIn("a"));
  EXPECT_EQ(newest.term(), 6u);
}

TEST(NewestPlanTest, OlderPlanIsRefusedWithBothNumbers) {
  NewestPlan newest;
  ASSERT_TRUE(newest.Take(PlanOf(7, "a", PlaceState::kServe)).ok());
  const absl::Status s = newest.Take(PlanOf(6, "a", PlaceState::kOff));
  EXPECT_TRUE(absl::IsFailedPrecondition(s));
  EXPECT_THAT(std::string(s.message()),
              HasSubstr("plan 6 is older than plan 7"));
  EXPECT_TRUE(newest.LetsIn("a"));
  EXPECT_EQ(newest.number(), 7u);
}

TEST(NewestPlanTest, SamePlanAgainIsFineAndANewerOneReplacesIt) {
  NewestPlan newest;
  ASSERT_TRUE(newest.Take(PlanOf(7, "a", PlaceState::kServe)).ok());
  EXPECT_TRUE(newest.Take(PlanOf(7, "a", PlaceState::kServe)).ok());
  ASSERT_TRUE(newest.Take(PlanOf(9, "b", PlaceState::kRetire)).ok());
  EXPECT_EQ(newest.plan()->number, 9u);
  EXPECT_EQ(newest.Place("a"), nullptr) << "the newer plan does not name it";
  EXPECT_FALSE(newest.LetsIn("b"));
}

TEST(NewestPlanTest, OnlyWhatServesOrIsNotNamedIsLetIn) {
  NewestPlan newest;
  EXPECT_EQ(newest.plan(), nullptr);
  EXPECT_TRUE(newest.LetsIn("a")) << "there is no plan";
  const struct {
    PlaceState state;
    bool lets_in, ends;
  } cases[] = {{PlaceState::kOff, false, true},
               {PlaceState::kStart, false, false},
               {PlaceState::kServe, true, false},
               {PlaceState::kRetire, false, true},
               {static_cast<PlaceState>(200), false, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.state));
    ASSERT_TRUE(newest.Take(PlanOf(newest.number() + 1, "a", c.state)).ok());
    EXPECT_EQ(newest.LetsIn("a"), c.lets_in);
    EXPECT_EQ(newest.Ends("a"), c.ends);
    EXPECT_TRUE(newest.LetsIn("b"));
    EXPECT_FALSE(newest.Ends("b"));
  }
}

TEST(NewestPlanTest, ChangesOfPlacesAreRemembered) {
  NewestPlan newest;
  ASSERT_TRUE(newest.Take(PlanOf(3, "a", PlaceState::kOff)).ok());
  EXPECT_TRUE(newest.changes().empty()) << "nothing was known before";
  ASSERT_TRUE(newest.Take(PlanOf(4, "a", PlaceState::kStart)).ok());
  ASSERT_TRUE(newest.Take(PlanOf(5, "a", PlaceState::kStart)).ok());
  ASSERT_EQ(newest.changes().size(), 1u);
  const PlaceChange& change = newest.changes()[0];
  EXPECT_EQ(change.number, 4u);
  EXPECT_EQ(change.engine, "a");
  EXPECT_EQ(change.from, PlaceState::kOff);
  EXPECT_EQ(change.to, PlaceState::kStart);
  for (uint64_t n = 6; n < 100; ++n) {
    const auto to = n % 2 == 0 ? PlaceState::kServe : PlaceState::kRetire;
    ASSERT_TRUE(newest.Take(PlanOf(n, "a", to)).ok());
  }
  EXPECT_EQ(newest.changes().size(), NewestPlan::kMostChanges);
  EXPECT_EQ(newest.changes().back().number, 99u);
  newest.Forget();
  EXPECT_TRUE(newest.changes().empty());
}

TEST(NewestPlanTest, PlanWithoutANumberIsRefused) {
  NewestPlan newest;
  EXPECT_TRUE(
      absl::IsInvalidArgument(newest.Take(PlanOf(0, "a", PlaceState::kOff))));
  EXPECT_EQ(newest.plan(), nullptr);
}

TEST(NewestPlanTest, RatesThatAreNoAmountCountAsNone) {
  NewestPlan newest;
  for (const double rate : {-1.0, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    ASSERT_TRUE(
        newest.Take(PlanOf(newest.number() + 1, "a", PlaceState::kServe, rate))
            .ok());
    EXPECT_EQ(newest.Place("a")->target_rate, 0) << rate;
  }
}

}  // namespace
}  // namespace fineserve::wire
