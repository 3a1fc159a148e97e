#include "daemon/scheduling/lead/advance.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

namespace fineserve::lead {
namespace {

using State = PlaceState;

const config::PlannerSettings kSettings;  // start 600 s, drain 300 s

StandingPlan Moving(State to, State from) {
  StandingPlan plan;
  plan.places = {{"a-0", from, 1}, {"a-1", to, 0}};
  plan.move = Move{"a", "a-1", "a-0", "more room"};
  return plan;
}

Sighting Serves(uint32_t running) { return {true, true, running, true}; }
Sighting Down() { return {true, false, 0, true}; }

TEST(AdvanceTest, SourceServesUntilTheTargetDoes) {
  StandingPlan plan = Moving(State::kStart, State::kServe);
  EXPECT_EQ(
      Advance({{"a-0", Serves(3)}, {"a-1", Down()}}, 10, kSettings, &plan), "");
  EXPECT_EQ(plan, Moving(State::kStart, State::kServe));
  EXPECT_EQ(
      Advance({{"a-0", Serves(3)}, {"a-1", Serves(0)}}, 11, kSettings, &plan),
      "a-1 serves, a-0 retires");
  EXPECT_EQ(plan, Moving(State::kServe, State::kRetire));
}

TEST(AdvanceTest, SourceGoesOffWhenItRunsNothing) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  const Sighting to = Serves(5);
  EXPECT_EQ(Advance({{"a-0", Serves(1)}, {"a-1", to}}, 1, kSettings, &plan),
            "");
  EXPECT_NE(Advance({{"a-0", Serves(0)}, {"a-1", to}}, 1, kSettings, &plan),
            "");
  EXPECT_EQ(plan.StateOf("a-0"), State::kOff);
  EXPECT_EQ(plan.StateOf("a-1"), State::kServe);
  EXPECT_FALSE(plan.move);
}

// The daemon may let requests in until it applies the plan.
TEST(AdvanceTest, SourceWaitsForItsDaemonToKnowThePlan) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  Sighting from = Serves(0);
  from.knows_plan = false;
  EXPECT_EQ(Advance({{"a-0", from}, {"a-1", Serves(5)}}, 1, kSettings, &plan),
            "");
}

TEST(AdvanceTest, SourceThatSeemsDownAnswersWhatItHas) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  Sighting from = Serves(2);
  from.serves = false;
  EXPECT_EQ(Advance({{"a-0", from}, {"a-1", Serves(5)}}, 1, kSettings, &plan),
            "");
  from = Down();
  from.knows_plan = false;
  EXPECT_EQ(Advance({{"a-0", from}, {"a-1", Serves(5)}}, 1, kSettings, &plan),
            "a-0 is off");
}

TEST(AdvanceTest, UnheardSourceGoesOffOnlyWhenTimeIsUp) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  EXPECT_EQ(Advance({{"a-1", Serves(5)}}, 299, kSettings, &plan), "");
  EXPECT_EQ(Advance({{"a-1", Serves(5)}}, 300, kSettings, &plan),
            "a-0 is off: after 300 s it still ran 0 requests");
}

TEST(AdvanceTest, TargetThatDoesNotServeInTimeIsGivenUp) {
  StandingPlan plan = Moving(State::kStart, State::kServe);
  const Sightings seen = {{"a-0", Serves(3)}, {"a-1", Down()}};
  EXPECT_EQ(Advance(seen, 599, kSettings, &plan), "");
  EXPECT_NE(Advance(seen, 600, kSettings, &plan), "");
  EXPECT_EQ(plan.StateOf("a-0"), State::kServe);
  EXPECT_EQ(plan.StateOf("a-1"), State::kOff);
  EXPECT_FALSE(plan.move);
}

TEST(AdvanceTest, LostTargetGivesTheModelBackToTheSource) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  EXPECT_EQ(Advance({{"a-0", Serves(3)}, {"a-1", Down()}}, 1, kSettings, &plan),
            "the move is undone: a-1 is lost, a-0 serves again");
  EXPECT_EQ(plan.StateOf("a-0"), State::kServe);
  EXPECT_EQ(plan.StateOf("a-1"), State::kOff);
  EXPECT_FALSE(plan.move);
}

// The target's daemon has just started, and does not know what the target runs.
TEST(AdvanceTest, TargetThatIsUnheardRetiresAndTheSourceServes) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  Sighting unheard;
  EXPECT_EQ(
      Advance({{"a-0", Serves(3)}, {"a-1", unheard}}, 1, kSettings, &plan),
      "the move turns back: a-0 serves again, a-1 retires");
  StandingPlan back = Moving(State::kRetire, State::kServe);
  std::swap(back.move->to, back.move->from);
  EXPECT_EQ(plan, back);
  EXPECT_EQ(
      Advance({{"a-0", Serves(3)}, {"a-1", unheard}}, 1, kSettings, &plan), "");
  EXPECT_EQ(
      Advance({{"a-0", Serves(3)}, {"a-1", Serves(2)}}, 2, kSettings, &plan),
      "");
  EXPECT_EQ(
      Advance({{"a-0", Serves(3)}, {"a-1", Serves(0)}}, 3, kSettings, &plan),
      "a-1 is off");
}

// A proxy has given the target up after one broken answer, but other requests
// continue.
TEST(AdvanceTest, LostTargetThatStillRunsRequestsRetires) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  Sighting lost = Down();
  lost.running = 2;
  EXPECT_EQ(Advance({{"a-0", Serves(3)}, {"a-1", lost}}, 1, kSettings, &plan),
            "the move turns back: a-0 serves again, a-1 retires");
  EXPECT_EQ(Advance({{"a-0", Serves(3)}, {"a-1", Down()}}, 2, kSettings, &plan),
            "a-1 is off");
}

// The move waits until one of its two places answers again.
TEST(AdvanceTest, NothingIsSwitchedOffWhileNoPlaceServes) {
  StandingPlan plan = Moving(State::kServe, State::kRetire);
  EXPECT_EQ(Advance({{"a-0", Down()}, {"a-1", Down()}}, 1e6, kSettings, &plan),
            "");
}

TEST(AdvanceTest, ReplicaMoreAndReplicaLessAreHalfAMove) {
  StandingPlan more = Moving(State::kStart, State::kServe);
  more.move->from = "";
  EXPECT_EQ(Advance({{"a-1", Serves(0)}}, 1, kSettings, &more), "a-1 serves");
  EXPECT_EQ(more.StateOf("a-0"), State::kServe);
  EXPECT_FALSE(more.move);
  StandingPlan less = Moving(State::kServe, State::kRetire);
  less.move->to = "";
  EXPECT_EQ(Advance({{"a-0", Serves(0)}}, 1, kSettings, &less), "a-0 is off");
  EXPECT_EQ(less.StateOf("a-1"), State::kServe);
}

// Engines come and go, daemons fall silent and know old plans, time jumps: at
// every step one of the two places serves by the plan.
TEST(AdvanceTest, ModelAlwaysHasAPlaceThatServesByThePlan) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    StandingPlan plan = Moving(State::kStart, State::kServe);
    for (int step = 0; step < 30 && plan.move; ++step) {
      Sightings seen;
      for (const char* engine : {"a-0", "a-1"}) {
        const bool heard = random() % 4 != 0;
        seen[engine] = {heard, heard && random() % 2 == 0,
                        static_cast<uint32_t>(random() % 3), random() % 2 == 0};
      }
      Advance(seen, static_cast<double>(random() % 700), kSettings, &plan);
      const bool serves = plan.StateOf("a-0") == State::kServe ||
                          plan.StateOf("a-1") == State::kServe;
      ASSERT_TRUE(serves) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace fineserve::lead
