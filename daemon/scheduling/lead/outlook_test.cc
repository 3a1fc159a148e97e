#include "daemon/scheduling/lead/outlook.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "daemon/scheduling/lead/lead_fixture.h"

namespace fineserve::lead {
namespace {

TEST(OutlookTest, SnapshotSaysWhatServesWhere) {
  const config::Fleet fleet = FleetOf({1, 2}, 2);
  const StandingPlan plan = Serving(fleet, {"a-1"});
  const Gpus gpus = Two(16, 8);
  const Demands demand;
  const plan::Snapshot s = Outlook(fleet, plan, gpus, demand).Free();
  ASSERT_TRUE(CheckSnapshot(s).ok()) << CheckSnapshot(s);
  EXPECT_EQ(s.gpus.size(), 2u);
  EXPECT_EQ(s.models.size(), 2u);
  EXPECT_EQ(s.current, (std::vector<plan::Placed>{{"a", {"GPU-1"}}}));
}

TEST(OutlookTest, PlannedDemandIsSeenOrExpectedOrNextToNothing) {
  config::Fleet fleet = FleetOf({1, 1, 1}, 1);
  fleet.models[2].expected_rate = fleet.models[2].expected_prompt_tokens = 0;
  const StandingPlan plan;
  const Gpus gpus = Two(16, 8);
  const Demands demand = {{"a", {60, 4, 0, 0, -1}}};
  const Outlook outlook(fleet, plan, gpus, demand);
  EXPECT_EQ(outlook.PlannedDemand(fleet.models[0]).rate, 4);
  EXPECT_EQ(outlook.PlannedDemand(fleet.models[0]).prompt_tokens, 500);
  EXPECT_EQ(outlook.PlannedDemand(fleet.models[1]).rate, 0.5);
  EXPECT_GT(outlook.PlannedDemand(fleet.models[2]).rate, 0);
  EXPECT_GT(outlook.PlannedDemand(fleet.models[2]).prompt_tokens, 0);
}

TEST(OutlookTest, IdleModelKeepsARate) {
  const config::Fleet fleet = FleetOf({1}, 1);
  const StandingPlan plan;
  const Gpus gpus = Two(16, 8);
  const Demands demand = {{"a", {60, 0, 0, 0, -1}}};
  const Outlook outlook(fleet, plan, gpus, demand);
  EXPECT_TRUE(CheckSnapshot(outlook.Free()).ok());
  EXPECT_LT(outlook.PlannedDemand(fleet.models[0]).rate, 0.5);
}

// Weights have the memory that the pool leaves, floors have the pool; a place
// that retires still counts.
TEST(OutlookTest, ShortfallCountsAllThatRuns) {
  config::Fleet fleet = FleetOf({3, 4}, 2);
  StandingPlan plan = Serving(fleet, {"a-0"});
  const Gpus gpus = Two(16, 10);  // 6 GiB for weights
  const Demands demand;
  const Outlook outlook(fleet, plan, gpus, demand);
  const config::FleetEngine& b0 = *fleet.Engine("b-0");
  EXPECT_NEAR(outlook.Shortfall(b0), 1 * kGib, 1);
  EXPECT_LE(outlook.Shortfall(*fleet.Engine("b-1")), 0);
  plan.Find("a-0")->state = PlaceState::kRetire;
  EXPECT_NEAR(outlook.Shortfall(b0), 1 * kGib, 1);
  plan.Find("a-0")->state = PlaceState::kOff;
  EXPECT_LE(outlook.Shortfall(b0), 0);
  for (config::FleetEngine& e : fleet.engines) e.floor_bytes = 11ull << 30;
  EXPECT_NEAR(outlook.Shortfall(b0), 1 * kGib, 1);
}

TEST(OutlookTest, SnapshotSaysWhatContextsAndProcessesTakeOfWhichMachine) {
  config::Fleet fleet = FleetOf({1, 1}, 2);
  fleet.models[0].context_bytes = 5;
  fleet.models[0].process_bytes = 6;
  for (const char* engine : {"a-0", "a-1"}) {
    for (config::FleetEngine& e : fleet.engines) {
      e.may_evict |= e.name == engine;
    }
  }
  const StandingPlan plan = Serving(fleet, {"a-1"});
  Gpus gpus = Two(16, 8);
  const Demands demand;
  EXPECT_TRUE(Outlook(fleet, plan, gpus, demand).Free().nodes.empty());
  gpus["GPU-0"].host_bytes = 70;
  gpus["GPU-1"].host_bytes = 80;
  plan::Snapshot s = Outlook(fleet, plan, gpus, demand).Free();
  EXPECT_EQ(s.models[0].context_bytes, 5);
  EXPECT_EQ(s.models[0].process_bytes, 6);
  EXPECT_TRUE(s.models[0].may_rest);
  EXPECT_FALSE(s.models[1].may_rest);
  EXPECT_EQ(s.nodes, (std::vector<plan::Node>{{"", 70}})) << "one machine";
  fleet.cluster.machines = {{"m", "h", {"GPU-0"}}, {"n", "i", {"GPU-1"}}};
  s = Outlook(fleet, plan, gpus, demand).Free();
  EXPECT_EQ(s.gpus[1].node, "n");
  EXPECT_EQ(s.nodes, (std::vector<plan::Node>{{"m", 70}, {"n", 80}}));
  fleet.planner.host_bytes = 90;
  fleet.cluster.machines[1].host_bytes = 100;
  s = Outlook(fleet, plan, gpus, demand).Free();
  EXPECT_EQ(s.nodes, (std::vector<plan::Node>{{"m", 90}, {"n", 100}}));
}

// A resting engine gives way, so it does not count here.
TEST(OutlookTest, ShortfallCountsContextsAndProcessesOfAllThatRuns) {
  config::Fleet fleet = FleetOf({3, 2}, 2);
  for (config::FleetModel& m : fleet.models) m.context_bytes = 1ull << 30;
  StandingPlan plan = Serving(fleet, {"a-0"});
  Gpus gpus = Two(16, 10);  // 6 GiB for weights and contexts
  const Demands demand;
  const Outlook outlook(fleet, plan, gpus, demand);
  const config::FleetEngine& b0 = *fleet.Engine("b-0");
  EXPECT_NEAR(outlook.Shortfall(b0), 1 * kGib, 1);
  plan.Find("a-0")->state = PlaceState::kOff;
  EXPECT_LE(outlook.Shortfall(b0), 0);
  plan.Find("a-1")->state = PlaceState::kStart;
  for (config::FleetModel& m : fleet.models) m.process_bytes = 4ull << 30;
  EXPECT_LE(outlook.Shortfall(b0), 0) << "the host memory is not known";
  gpus["GPU-0"].host_bytes = gpus["GPU-1"].host_bytes = 7 * kGib;
  EXPECT_NEAR(outlook.Shortfall(b0), 1 * kGib, 1);
  fleet.cluster.machines = {{"m", "h", {"GPU-0"}}, {"n", "i", {"GPU-1"}}};
  EXPECT_LE(outlook.Shortfall(b0), 0) << "a-1 is on another machine";
}

TEST(OutlookTest, EngineThatNeverMovesStaysWhereItIs) {
  config::Fleet fleet = FleetOf({1, 1}, 2);
  fleet.engines[2].is_place = false;  // b-0
  fleet.engines.pop_back();           // b-1
  const StandingPlan plan = Serving(fleet, {"a-0"});
  const Gpus gpus = Two(16, 8);
  const Demands demand;
  const plan::Snapshot s = Outlook(fleet, plan, gpus, demand).Free();
  ASSERT_TRUE(CheckSnapshot(s).ok()) << CheckSnapshot(s);
  EXPECT_EQ(s.models[1].pins, std::vector<std::string>{"GPU-0"});
  EXPECT_EQ(s.models[1].replicas, 1u);
}

TEST(OutlookTest, ModelOfUnknownSizeIsATroubleNotAPlan) {
  config::Fleet fleet = FleetOf({1, 1}, 2);
  fleet.models[1].measured.reset();
  const StandingPlan plan;
  const Gpus gpus = Two(16, 8);
  const Demands demand;
  const Outlook outlook(fleet, plan, gpus, demand);
  EXPECT_EQ(outlook.Free().models.size(), 1u);
  ASSERT_EQ(outlook.Troubles().size(), 1u);
  EXPECT_NE(outlook.Troubles()[0].find("\"b\""), std::string::npos);
}

// Each GPU of the pair has 2 of the 4 GiB of weights.
TEST(OutlookTest, EngineOnTwoGpusHasAPartOnEach) {
  config::Fleet fleet = FleetOf({3}, 2);
  fleet.models.push_back(ModelOf("d", 4));
  AddPairs("d", {{"GPU-1", "GPU-0"}}, &fleet);
  const StandingPlan plan = Serving(fleet, {"a-1", "d-0"});
  const Gpus gpus = Two(12, 8);
  const Demands demand;
  const Outlook outlook(fleet, plan, gpus, demand);
  const plan::Snapshot s = outlook.Free();
  ASSERT_TRUE(CheckSnapshot(s).ok()) << CheckSnapshot(s);
  EXPECT_EQ(s.models[1].tp, 2u);
  EXPECT_EQ(s.models[1].groups, (std::vector<GpuGroup>{{"GPU-0", "GPU-1"}}));
  EXPECT_EQ(s.current, (std::vector<plan::Placed>{{"a", {"GPU-1"}},
                                                  {"d", {"GPU-0", "GPU-1"}}}));
  EXPECT_NEAR(outlook.Shortfall(*fleet.Engine("d-0")), 1 * kGib, 1)
      << "beside a-1, on one of its GPUs";
  EXPECT_NEAR(outlook.Shortfall(*fleet.Engine("a-0")), 1 * kGib, 1);
}

TEST(OutlookTest, PinLeavesOneGpu) {
  const config::Fleet fleet = FleetOf({1}, 2);
  StandingPlan plan = Serving(fleet, {"a-0"});
  plan.pins["a"] = "GPU-1";
  const Gpus gpus = Two(16, 8);
  const Demands demand;
  const plan::Snapshot s = Outlook(fleet, plan, gpus, demand).Free();
  EXPECT_EQ(s.models[0].pins, std::vector<std::string>{"GPU-1"});
}

}  // namespace
}  // namespace fineserve::lead
