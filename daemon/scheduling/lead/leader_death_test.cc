#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/scheduling/lead/leader.h"
#include "daemon/scheduling/lead/leader_machine.h"

namespace fineserve::lead {
namespace {

// A part of the work under sanitizers, which look for other errors and take far
// longer.
#if defined(FINESERVE_SANITIZED)
constexpr uint64_t kSeeds = 4;
#else
constexpr uint64_t kSeeds = 40;
#endif

// Processes die at any time while loads shift: no model is ever without a place
// that serves by the plan, nothing is overbooked (LeaderMachine::CheckPlan),
// and when the deaths end everything comes to rest.
class LeaderDeathTest : public testing::TestWithParam<double> {};

TEST_P(LeaderDeathTest, DeathsAtAnyTimeLeaveEveryModelServed) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const config::Fleet fleet = GetParam() > 0  ? ThreeThatRest()
                                : seed % 2 == 0 ? Three()
                                                : WithAPair();
    LeaderMachine machine(fleet);
    machine.SetHost(GetParam());
    machine.Seconds(30);
    for (int t = 0; t < 300; ++t) {
      if (t % 60 == 0) {
        for (const config::FleetModel& m : fleet.models) {
          machine.SetRate(m.name, random() % 2 == 0 ? 18 : 0.2);
        }
      }
      const int seconds = 1 + static_cast<int>(random() % 8);
      switch (random() % 40) {
        case 0:
          machine.KillLeader(seconds);
          break;
        case 1:
        case 2:
          machine.KillDaemon(
              fleet.engines[random() % fleet.engines.size()].Gpus().back(),
              seconds);
          break;
        case 3:
          machine.KillHand(seconds);
          break;
        case 4:
          machine.KillEngine(
              fleet.engines[random() % fleet.engines.size()].name);
          break;
        default:
          break;
      }
      machine.Second();
    }
    machine.Seconds(600);  // until all places may be tried again
    EXPECT_FALSE(machine.plan().move);
    const StandingPlan rest = machine.plan();
    machine.Seconds(100);
    EXPECT_EQ(machine.plan().number, rest.number);
    std::set<std::string> serving;
    for (const config::FleetModel& m : fleet.models) {
      ASSERT_EQ(machine.Serving(m.name).size(), 1u);
      serving.insert(machine.Serving(m.name)[0]);
    }
    EXPECT_EQ(machine.Running(), serving);
  }
}

INSTANTIATE_TEST_SUITE_P(HostGib, LeaderDeathTest,
                         ::testing::Values(0.0, 5.0, 8.0),
                         [](const auto& param_info) {
                           return absl::StrCat(
                               static_cast<int>(param_info.param));
                         });

}  // namespace
}  // namespace fineserve::lead
