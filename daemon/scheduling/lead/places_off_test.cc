#include "daemon/scheduling/lead/places_off.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "daemon/scheduling/lead/lead_fixture.h"

namespace fineserve::lead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Processes of 1 GiB and contexts of half a GiB; all places may rest.
config::Fleet Resting(const std::vector<double>& weights_gib, size_t gpus) {
  config::Fleet fleet = FleetOf(weights_gib, gpus);
  for (config::FleetModel& m : fleet.models) {
    m.process_bytes = 1ull << 30;
    m.context_bytes = 1ull << 29;
  }
  for (config::FleetEngine& e : fleet.engines) e.may_evict = true;
  return fleet;
}

Gpus TwoWithHost(double host_gib) {
  Gpus gpus = Two(8, 5);
  for (auto& [uuid, facts] : gpus) facts.host_bytes = host_gib * kGib;
  return gpus;
}

Rest Decided(const config::Fleet& fleet, const StandingPlan& plan,
             const Gpus& gpus, const PlacesOff& off,
             const Demands& demand = {}) {
  const auto rest = DecideRest(fleet, plan, gpus, demand, off);
  EXPECT_TRUE(rest.ok()) << rest.status();
  return rest.value_or(Rest());
}

// The store holds a's GiB of weights once.
TEST(PlacesOffTest, RestWhileTheHostHoldsThemBesideWhatRuns) {
  const config::Fleet fleet = Resting({1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-1"});
  const PlacesOff off = {{"a-1", true}, {"b-0", true}};
  for (const double host : {6.0, 100.0}) {
    const Rest rest = Decided(fleet, plan, TwoWithHost(host), off);
    EXPECT_THAT(rest.stays, ElementsAre("a-1", "b-0")) << host;
    EXPECT_THAT(rest.ends, IsEmpty()) << host;
  }
  const Rest less = Decided(fleet, plan, TwoWithHost(5.9), off);
  EXPECT_THAT(less.stays, ElementsAre("a-1"));
  EXPECT_THAT(less.ends, ElementsAre("b-0"));
  EXPECT_THAT(less.troubles, IsEmpty());
}

// The planner does not decide whether an engine on two GPUs rests, but counts
// what it keeps.
TEST(PlacesOffTest, OneOnTwoGpusRestsBeforeTheOthers) {
  config::Fleet fleet = Resting({1, 1}, 2);
  fleet.models.push_back(ModelOf("d", 2));
  fleet.models.back().process_bytes = 1ull << 30;
  AddPairs("d", {{"GPU-0", "GPU-1"}}, &fleet);
  fleet.engines.back().may_evict = true;
  const StandingPlan plan = Serving(fleet, {"a-0", "b-1"});
  PlacesOff off = {{"a-1", true}, {"b-0", true}};
  EXPECT_THAT(Decided(fleet, plan, TwoWithHost(6.9), off).ends, IsEmpty());
  off["d-0"] = true;
  const Rest rest = Decided(fleet, plan, TwoWithHost(6.9), off);
  EXPECT_THAT(rest.ends, ElementsAre("b-0"));
  EXPECT_THAT(rest.stays, ElementsAre("a-1", "d-0"));
}

TEST(PlacesOffTest, AllRestWhereTheHostMemoryIsNotKnown) {
  config::Fleet fleet = Resting({1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-1"});
  const PlacesOff off = {{"a-1", true}, {"b-0", false}};
  const Rest rest = Decided(fleet, plan, Two(8, 5), off);
  EXPECT_THAT(rest.stays, ElementsAre("a-1", "b-0"));
  EXPECT_THAT(rest.ends, IsEmpty());
  // One of two machines.
  fleet.cluster.machines = {{"m", "h", {"GPU-0"}}, {"n", "i", {"GPU-1"}}};
  Gpus gpus = Two(8, 5);
  gpus["GPU-0"].host_bytes = 1.5 * kGib;
  const Rest half = Decided(fleet, plan, gpus, off);
  EXPECT_THAT(half.stays, ElementsAre("a-1"));
  EXPECT_THAT(half.ends, ElementsAre("b-0"));
}

TEST(PlacesOffTest, TheFleetFilesHostMemoryGoesBeforeWhatDaemonsRead) {
  config::Fleet fleet = Resting({1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-1"});
  const PlacesOff off = {{"a-1", true}, {"b-0", true}};
  fleet.planner.host_bytes = 6ull << 30;
  EXPECT_THAT(Decided(fleet, plan, TwoWithHost(1), off).ends, IsEmpty());
  EXPECT_THAT(Decided(fleet, plan, Two(8, 5), off).ends, IsEmpty());
  fleet.planner.host_bytes = 5ull << 30;
  EXPECT_THAT(Decided(fleet, plan, TwoWithHost(100), off).ends,
              ElementsAre("b-0"));
  fleet.cluster.machines = {{"m", "h", {"GPU-0"}, 2ull << 30},
                            {"n", "i", {"GPU-1"}}};
  EXPECT_THAT(Decided(fleet, plan, TwoWithHost(100), off).ends,
              ElementsAre("b-0"));
}

// An engine that already rests does not end for an engine that has just gone
// off, nor because of a rate.
TEST(PlacesOffTest, OneThatRestsStaysWhateverTheRates) {
  const config::Fleet fleet = Resting({0.5, 0.5, 0.5}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-1", "c-0"});
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    Demands demand;
    for (const char* model : {"a", "b", "c"}) {
      const double rate = 0.01 * static_cast<double>(random() % 500);
      demand[model] = {60, rate, 500, 200, 1};
    }
    const Rest rest = Decided(
        fleet, plan, TwoWithHost(6.2),
        {{"a-1", random() % 2 == 0}, {"b-0", true}, {"c-1", false}}, demand);
    EXPECT_EQ(rest.stays.count("b-0"), 1u) << i;
    EXPECT_EQ(rest.stays.size(), 2u) << i;
  }
}

TEST(PlacesOffTest, AContextGivesWayToWhatRunsThere) {
  const config::Fleet fleet = Resting({1, 1}, 2);
  // There are 3 GiB beside the pool; a-0 and b-0 take 1.5 GiB each.
  const PlacesOff off = {{"a-0", true}, {"a-1", true}};
  StandingPlan plan = Serving(fleet, {"b-0"});
  EXPECT_THAT(Decided(fleet, plan, TwoWithHost(100), off).ends, IsEmpty());
  plan.Find("a-1")->state = PlaceState::kStart;  // no longer off
  const Rest rest = Decided(fleet, plan, TwoWithHost(100), off);
  EXPECT_THAT(rest.stays, ElementsAre("a-0"));
  Gpus small = TwoWithHost(100);
  small["GPU-0"].pool_bytes += 1.25 * kGib;  // leaves a quarter beside b-0
  EXPECT_THAT(Decided(fleet, plan, small, off).ends, ElementsAre("a-0"));
}

// A pin says where a model serves, and can be removed again.
TEST(PlacesOffTest, PinEndsNoPlace) {
  const config::Fleet fleet = Resting({1, 1}, 2);
  StandingPlan plan = Serving(fleet, {"a-0", "b-1"});
  plan.pins["a"] = "GPU-0";
  const Rest rest =
      Decided(fleet, plan, TwoWithHost(100), {{"a-1", false}, {"b-0", true}});
  EXPECT_THAT(rest.stays, ElementsAre("a-1", "b-0"));
}

// Each place that starts or retires has a process.
TEST(PlacesOffTest, ProcessesThatDoNotFitTheHostAreATrouble) {
  const config::Fleet fleet = Resting({1, 1}, 2);
  StandingPlan plan = Serving(fleet, {"a-0", "b-1"});
  plan.Find("a-1")->state = PlaceState::kStart;
  plan.Find("b-0")->state = PlaceState::kRetire;
  const Rest rest = Decided(fleet, plan, TwoWithHost(3), {});
  ASSERT_EQ(rest.troubles.size(), 1u);
  EXPECT_THAT(rest.troubles[0],
              HasSubstr("the machine: engines' processes take 4.0 GiB of 3.0 "
                        "GiB of host memory"));
  EXPECT_THAT(Decided(fleet, plan, TwoWithHost(4), {}).troubles, IsEmpty());
}

}  // namespace
}  // namespace fineserve::lead
