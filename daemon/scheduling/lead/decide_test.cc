#include "daemon/scheduling/lead/decide.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/scheduling/lead/lead_fixture.h"

namespace fineserve::lead {
namespace {

constexpr double kTwenty = 0.2;

Demand Asks(double rate) { return {60, rate, 500, 200, 1}; }

TEST(DecideTest, EachModelWithoutAnEngineGetsOne) {
  const config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  const auto d =
      Decide(fleet, Serving(fleet, {"b-1"}), Two(8, 5), {}, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_EQ(d->host.size(), 2u);
  EXPECT_EQ(d->host[0][0], 'a');
  EXPECT_EQ(d->host[1][0], 'c');
  EXPECT_FALSE(d->move) << "one thing at a time";
}

TEST(DecideTest, NothingIsHostedOnAGpuWhoseDaemonIsSilent) {
  const config::Fleet fleet = FleetOf({1}, 2);
  Experience experience;
  experience.silent = {"a-0"};
  const StandingPlan plan = Serving(fleet, {});
  auto d = Decide(fleet, plan, Two(8, 5), {}, experience, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->host, std::vector<std::string>{"a-1"});
  experience.silent = {"a-0", "a-1"};
  d = Decide(fleet, plan, Two(8, 5), {}, experience, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_TRUE(d->host.empty());
  ASSERT_EQ(d->troubles.size(), 1u);
  EXPECT_NE(d->troubles[0].find("no daemon of its GPUs answers"),
            std::string::npos);
}

// Each GPU has 3 GiB for weights, so the third model must not join another one.
TEST(DecideTest, HostsOnlyWhereItFitsBesideThePool) {
  const config::Fleet fleet = FleetOf({2, 2, 2}, 2);
  const auto d =
      Decide(fleet, Serving(fleet, {}), Two(8, 5), {}, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->host.size(), 2u);
  ASSERT_EQ(d->troubles.size(), 1u);
  EXPECT_NE(d->troubles[0].find("1.0 GiB are missing"), std::string::npos)
      << d->troubles[0];
}

// The host memory holds one process only.
TEST(DecideTest, HostsOnlyWhatTheHostMemoryHolds) {
  config::Fleet fleet = FleetOf({1, 1}, 2);
  for (config::FleetModel& m : fleet.models) m.process_bytes = 4ull << 30;
  fleet.planner.host_bytes = 6ull << 30;
  const auto d =
      Decide(fleet, Serving(fleet, {}), Two(8, 5), {}, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->host.size(), 1u);
  ASSERT_EQ(d->troubles.size(), 1u);
  EXPECT_NE(d->troubles[0].find("2.0 GiB are missing"), std::string::npos)
      << d->troubles[0];
  EXPECT_NE(d->troubles[0].find("host memory"), std::string::npos);
}

// Without a context it fits.
TEST(DecideTest, MoveToAGpuWhoseContextsLeaveNoRoomIsNotMade) {
  config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-0", "c-1"});
  const Demands demand = {{"a", Asks(18)}, {"b", Asks(18)}, {"c", Asks(0.1)}};
  const Gpus gpus = Two(8, 5.75);
  auto d = Decide(fleet, plan, gpus, demand, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_TRUE(d->move);
  for (config::FleetModel& m : fleet.models) m.context_bytes = 1ull << 28;
  d = Decide(fleet, plan, gpus, demand, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_FALSE(d->move);
}

// Two busy models share a GPU while the other GPU idles.
TEST(DecideTest, BusyModelMovesToTheIdleGpu) {
  const config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-0", "c-1"});
  const Demands demand = {{"a", Asks(18)}, {"b", Asks(18)}, {"c", Asks(0.1)}};
  const auto d = Decide(fleet, plan, Two(8, 5), demand, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_TRUE(d->move);
  EXPECT_TRUE((d->move->from == "a-0" && d->move->to == "a-1") ||
              (d->move->from == "b-0" && d->move->to == "b-1"))
      << Describe(*d->move);
  EXPECT_NE(d->move->why.find("tokens/s instead of"), std::string::npos);
}

TEST(DecideTest, SmallGainMovesNoModel) {
  const config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-0", "c-1"});
  const Demands demand = {{"a", Asks(1)}, {"b", Asks(1)}, {"c", Asks(0.1)}};
  const auto d = Decide(fleet, plan, Two(8, 5), demand, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_FALSE(d->move);
}

TEST(DecideTest, NoMoveWhenNoneMayBegin) {
  const config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-0", "c-1"});
  const Demands demand = {{"a", Asks(18)}, {"b", Asks(18)}, {"c", Asks(0.1)}};
  const auto d = Decide(fleet, plan, Two(8, 5), demand, {}, false, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_FALSE(d->move);
}

// 2.5 GiB are left beside each pool: two busy models on one GPU and two idle
// ones on the other could only swap, for no third engine can join two.
TEST(DecideTest, MoveThatDoesNotFitBesideThePoolIsNotMade) {
  const config::Fleet fleet = FleetOf({1, 1, 1, 1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "b-0", "c-1", "d-1"});
  const Demands demand = {
      {"a", Asks(18)}, {"b", Asks(18)}, {"c", Asks(0.1)}, {"d", Asks(0.1)}};
  const auto d = Decide(fleet, plan, Two(8, 5.5), demand, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_FALSE(d->move);
  ASSERT_EQ(d->troubles.size(), 1u);
  EXPECT_NE(d->troubles[0].find("smaller --pool"), std::string::npos);
}

TEST(DecideTest, PinMovesAModelWhateverTheGain) {
  const config::Fleet fleet = FleetOf({1}, 2);
  StandingPlan plan = Serving(fleet, {"a-0"});
  plan.pins["a"] = "GPU-1";
  const auto d = Decide(fleet, plan, Two(8, 5), {}, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_TRUE(d->move);
  EXPECT_EQ(d->move->from, "a-0");
  EXPECT_EQ(d->move->to, "a-1");
}

TEST(DecideTest, PinToAGpuThatIsLostKeepsNoOtherModelFromBeingHosted) {
  const config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  StandingPlan plan = Serving(fleet, {"c-1"});
  plan.pins["a"] = plan.pins["c"] = "GPU-0";
  Gpus gpus = Two(8, 5);
  gpus.erase("GPU-0");
  const auto d = Decide(fleet, plan, gpus, {}, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->host, std::vector<std::string>{"b-1"});
  EXPECT_FALSE(d->move) << "c stays where it serves";
  ASSERT_EQ(d->troubles.size(), 1u);
  EXPECT_NE(d->troubles[0].find("model \"a\" has no engine"),
            std::string::npos);
}

TEST(DecideTest, DrainedReplicaEndsIfAnotherOneServes) {
  const config::Fleet fleet = FleetOf({1}, 2);
  const StandingPlan plan = Serving(fleet, {"a-0", "a-1"});
  Experience experience;
  experience.drained = {"a-0"};
  experience.shunned = {"a-0"};
  auto d = Decide(fleet, plan, Two(8, 5), {}, experience, false, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_TRUE(d->move);
  EXPECT_EQ(d->move->from, "a-0");
  EXPECT_EQ(d->move->to, "");
  for (std::set<std::string>* why :
       {&experience.down, &experience.silent, &experience.drained}) {
    Experience other = experience;
    *why = {"a-0", "a-1"};
    d = Decide(fleet, plan, Two(8, 5), {}, experience, false, kTwenty);
    ASSERT_TRUE(d.ok()) << d.status();
    EXPECT_FALSE(d->move) << "the other one may not serve, or not for long";
    experience = other;
  }
}

TEST(DecideTest, ReplicasShareTheRate) {
  config::Fleet fleet = FleetOf({1}, 2);
  fleet.models[0].replicas = 2;
  const StandingPlan plan = Serving(fleet, {"a-0", "a-1"});
  const auto d =
      Decide(fleet, plan, Two(8, 5), {{"a", Asks(6)}}, {}, true, kTwenty);
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_EQ(d->rates.size(), 2u);
  EXPECT_NEAR(d->rates.at("a-0") + d->rates.at("a-1"), 6, 1e-9);
  EXPECT_NEAR(d->rates.at("a-0"), 3, 0.1);
}

TEST(DecideTest, GainIsThatOfHostingThenGoodputThenHeadroom) {
  const plan::Worth now = {2, 100, 120, 0};
  EXPECT_EQ(RelativeGain(now, {3, 10, 10, 0}),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(RelativeGain(now, {1, 900, 900, 0}), -1);
  EXPECT_DOUBLE_EQ(RelativeGain(now, {2, 150, 10, 0}), 0.5);
  EXPECT_DOUBLE_EQ(RelativeGain(now, {2, 100.5, 180, 0}), 0.5);
  EXPECT_DOUBLE_EQ(RelativeGain(now, {2, 90, 180, 0}), -0.1);
  EXPECT_EQ(RelativeGain({2, 0, 0, 0}, {2, 0, 0, 0}), 0);
}

}  // namespace
}  // namespace fineserve::lead
