#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/scheduling/lead/leader.h"
#include "daemon/scheduling/lead/leader_machine.h"

namespace fineserve::lead {
namespace {

// Lets all three models run on either GPU, and returns what rests then; more
// memory makes no difference to it.
std::set<std::string> RestingAfterMoves(double host_gib) {
  LeaderMachine machine(ThreeThatRest());
  machine.SetHost(host_gib);
  machine.Seconds(60);
  for (const char* gpu : {"0", "1"}) {
    for (const char* model : {"a", "b", "c"}) machine.Bring(model, gpu);
  }
  EXPECT_EQ(machine.Running(), (std::set<std::string>{"a-1", "b-1", "c-1"}));
  const std::set<std::string> rests = machine.resting();
  for (const double more : {0.5, 1.0, 2.0, 100.0}) {
    if (host_gib > 0) machine.SetHost(host_gib + more);
    machine.Seconds(20);
    EXPECT_EQ(machine.resting(), rests) << more << " GiB more";
  }
  return rests;
}

TEST(LeaderTest, MoreHostMemoryEndsNoPlaceThatRests) {
  std::vector<size_t> counts;
  for (const double host_gib : {4.0, 5.0, 6.0, 7.0, 9.0, 100.0}) {
    counts.push_back(RestingAfterMoves(host_gib).size());
  }
  EXPECT_EQ(counts, (std::vector<size_t>{0, 1, 1, 2, 3, 3}));
  EXPECT_EQ(RestingAfterMoves(/*host_gib=*/0).size(), 3u) << "it is not known";
}

TEST(LeaderTest, ProcessesAreCountedAsDaemonsMeasureThemUnlessTheFileSays) {
  for (const bool is_said : {false, true}) {
    config::Fleet fleet = ThreeThatRest();
    for (config::FleetModel& m : fleet.models) {
      m.process_bytes = is_said ? 1 : 0;
    }
    LeaderMachine machine(fleet);
    machine.SetHost(5);
    machine.SetMeasured((1ull << 30) - 77);
    machine.Seconds(60);
    for (const char* gpu : {"0", "1"}) {
      for (const char* model : {"a", "b", "c"}) machine.Bring(model, gpu);
    }
    EXPECT_EQ(machine.resting().size(), is_said ? 3u : 1u);
  }
}

TEST(LeaderTest, RatesThatWobbleEndNoPlaceThatRests) {
  LeaderMachine machine(ThreeThatRest());
  machine.SetHost(7);
  machine.Seconds(60);
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "0");
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "1");
  const std::set<std::string> rests = machine.resting();
  ASSERT_EQ(rests.size(), 2u);
  const uint64_t number = machine.plan().number;
  for (int t = 0; t < 300; ++t) {
    const char* models[] = {"a", "b", "c"};
    for (int i = 0; i < 3; ++i) machine.SetRate(models[i], 1 + (t + i) % 3);
    machine.Second();
  }
  EXPECT_EQ(machine.resting(), rests);
  EXPECT_EQ(machine.plan().number, number);
}

// Without a hand, the place's process stays, and one plan says all that time
// that the process has to end.
TEST(LeaderTest, PlaceThatIsToEndIsNamedUntilItsProcessIsGone) {
  LeaderMachine machine(ThreeThatRest());
  machine.SetHost(7);
  machine.Seconds(60);
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "0");
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "1");
  ASSERT_EQ(machine.resting().size(), 2u);
  machine.KillHand(60);
  machine.SetHost(5);
  machine.Seconds(10);
  const StandingPlan plan = machine.plan();
  EXPECT_EQ(std::count_if(plan.places.begin(), plan.places.end(),
                          [](const Place& p) { return p.no_rest; }),
            1);
  machine.Seconds(40);
  EXPECT_EQ(machine.plan(), plan);
  machine.Seconds(20);
  EXPECT_EQ(machine.resting().size(), 1u);
}

// A move's target needs the memory of a process that rests, which ends with the
// plan that begins the move (LeaderMachine::CheckPlan).
TEST(LeaderTest, PlaceThatRestsEndsBeforeAnEngineStartsInItsPlace) {
  config::Fleet fleet = ThreeThatRest();
  for (config::FleetModel& m : fleet.models) m.process_bytes = 2ull << 30;
  LeaderMachine machine(fleet);
  machine.SetHost(9);
  machine.Seconds(60);
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "0");
  machine.Bring("a", "1");
  EXPECT_EQ(machine.resting(), std::set<std::string>{"a-0"});
  machine.Bring("b", "1");
  EXPECT_EQ(machine.resting(), std::set<std::string>{"b-0"});
  for (const Place& place : machine.plan().places) {
    EXPECT_FALSE(place.no_rest) << place.engine << " has no process";
  }
}

}  // namespace
}  // namespace fineserve::lead
