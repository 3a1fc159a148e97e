// Tests fleets whose engines a planner places and moves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "daemon/scheduling/lead/lead_fixture.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/workload/arrivals.h"
#include "tools/lab/workload/rates.h"

namespace fineserve::sim {
namespace {

using testing::HasSubstr;

constexpr double kShiftS = 60;

// Returns three models of 1 GiB on two GPUs of 8 GiB with pools of 5 GiB.
config::Fleet ThreeModels() {
  config::Fleet fleet = lead::FleetOf({1, 1, 1}, 2);
  fleet.planner.window_s = 20;
  fleet.planner.cool_down_s = 10;
  for (config::FleetModel& m : fleet.models) {
    m.profile = config::StepProfile{8000, 20, 60};
  }
  return fleet;
}

Site SiteOf() {
  Site site;
  site.memory_bytes = uint64_t{8} << 30;
  site.pool_bytes = uint64_t{5} << 30;
  site.slab_bytes = uint64_t{16} << 20;
  site.slowdown.factors = {1};
  site.hand = {2'000'000, uint64_t{1} << 30, 500'000};
  return site;
}

// All models have little to do until kShiftS. Then two that share a GPU become
// busy.
workload::Trace ShiftingLoad(uint64_t seed, double busy) {
  workload::Slots slots;
  slots.seconds = kShiftS;
  slots.streams.push_back({{"a", 0.5}, {"b", 0.5}, {"c", 0.5}});
  for (int i = 0; i < 2; ++i) {
    slots.streams.push_back({{"a", busy}, {"b", 0.5}, {"c", busy}});
  }
  return workload::PoissonBySlots(slots, 3 * kShiftS, {{500, 200}},
                                  seed * 1000);
}

RunResult RunOf(const config::Fleet& fleet, const workload::Trace& trace,
                bool frozen = false) {
  const absl::StatusOr<World> world = MakeWorld(fleet, SiteOf());
  EXPECT_TRUE(world.ok()) << world.status();
  RunOptions options;
  options.frozen = frozen;
  options.check = true;
  return *Run(*world, trace, *ModelsOf(*world, trace), options);
}

std::string TextWithPlan(const RunResult& r) {
  std::string text;
  for (const workload::Outcome& o : r.outcomes) {
    text +=
        std::to_string(o.first_token_s) + " " + std::to_string(o.end_s) + "\n";
  }
  for (const PlanRecord::Step& step : r.plan->steps) {
    text += std::to_string(step.at) + " " + std::to_string(step.number) + " " +
            step.why + "\n";
  }
  return text;
}

[[maybe_unused]] double OnTime(const RunResult& r) {
  return workload::Summarize(r.outcomes, r.seconds).attainment;
}

size_t NotDone(const RunResult& r) {
  return static_cast<size_t>(std::count_if(
      r.outcomes.begin(), r.outcomes.end(),
      [](const auto& o) { return o.end != workload::End::kDone; }));
}

TEST(SimPlanRunTest, FirstPlanPlacesModelsThatWereNotStarted) {
  const workload::Trace trace = workload::Poisson(
      {{"a", 0.5}, {"b", 0.5}, {"c", 0.5}}, 20, {{500, 200}}, 1);
  const RunResult r = RunOf(ThreeModels(), trace);
  ASSERT_FALSE(r.plan->steps.empty());
  EXPECT_THAT(r.plan->steps[0].why, HasSubstr("models had no engine"));
  // The load also waits until weights of 1 GiB are loaded at 1 GiB/s.
  EXPECT_GE(r.load_began, r.plan->steps[0].at + 3'000'000);
  EXPECT_EQ(NotDone(r), 0u);
  EXPECT_EQ(r.plan->moves, 0u);
}

TEST(SimPlanRunTest, ModelThatMovesIsNeverWithoutAnEngine) {
  const RunResult r = RunOf(ThreeModels(), ShiftingLoad(1, 9));
  EXPECT_GE(r.plan->moves, 1u);
  EXPECT_EQ(r.plan->moves_undone, 0u);
  EXPECT_EQ(NotDone(r), 0u) << "there is room for all, moves or not";
}

// This test checks figures, and its overload takes minutes under a sanitizer.
// The tests beside it run the same code.
#if !defined(FINESERVE_SANITIZED)
TEST(SimPlanRunTest, ReplanningKeepsMoreOnTimeThanAFrozenPlan) {
  const workload::Trace trace = ShiftingLoad(1, 18);
  const RunResult replanned = RunOf(ThreeModels(), trace);
  const RunResult frozen = RunOf(ThreeModels(), trace, /*frozen=*/true);
  EXPECT_GE(replanned.plan->moves, 1u);
  EXPECT_EQ(frozen.plan->moves, 0u);
  EXPECT_GT(OnTime(replanned), OnTime(frozen) + 0.1);
}
#endif

TEST(SimPlanRunTest, SameSeedGivesTheSameMovesAndTimes) {
  const RunResult one = RunOf(ThreeModels(), ShiftingLoad(1, 9));
  ASSERT_GE(one.plan->moves, 1u);
  EXPECT_EQ(TextWithPlan(one),
            TextWithPlan(RunOf(ThreeModels(), ShiftingLoad(1, 9))));
  EXPECT_NE(TextWithPlan(one),
            TextWithPlan(RunOf(ThreeModels(), ShiftingLoad(2, 9))));
}

TEST(SimPlanRunTest, ModelThatFitsNowhereIsSaidAndItsRequestsAreRefused) {
  config::Fleet fleet = ThreeModels();
  fleet.models[2].measured->weight_bytes = 4 * lead::kGib;
  fleet.planner.start_s = 20;
  const workload::Trace trace =
      workload::Poisson({{"b", 0.5}, {"c", 0.5}}, 20, {{500, 200}}, 1);
  const RunResult r = RunOf(fleet, trace);
  ASSERT_FALSE(r.plan->troubles.empty());
  EXPECT_THAT(r.plan->troubles[0], HasSubstr("model \"c\" has no engine"));
  for (const workload::Outcome& o : r.outcomes) {
    EXPECT_EQ(o.end,
              o.model == 2 ? workload::End::kDropped : workload::End::kDone);
  }
}

}  // namespace
}  // namespace fineserve::sim
