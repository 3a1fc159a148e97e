#include "daemon/scheduling/lead/leader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/scheduling/lead/leader_machine.h"

namespace fineserve::lead {
namespace {

// Makes the models busy that the planner chose as neighbours on one GPU, and
// returns them.
std::vector<std::string> MakeNeighboursBusy(LeaderMachine* machine) {
  std::map<char, std::vector<std::string>> on;
  for (const char* model : {"a", "b", "c"}) {
    on[machine->Serving(model).at(0).back()].push_back(model);
  }
  for (const auto& [gpu, models] : on) {
    if (models.size() < 2) continue;
    for (const std::string& m : models) machine->SetRate(m, 18);
    return models;
  }
  return {};
}

TEST(LeaderTest, StartsAllModelsAtOnceAndThenRests) {
  LeaderMachine machine(Three());
  machine.Seconds(10);
  for (const char* model : {"a", "b", "c"}) {
    EXPECT_EQ(machine.Serving(model).size(), 1u);
  }
  machine.Seconds(60);
  const uint64_t number = machine.plan().number;
  machine.Seconds(120);
  EXPECT_EQ(machine.plan().number, number);
  EXPECT_EQ(machine.Running().size(), 3u);
}

// A proxy that does not know that the source retires may send a request to it,
// without any daemon's word.
TEST(LeaderTest, SourceRunsUntilProxiesKnowThatItRetires) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string source = machine.Serving("a").at(0);
  wire::SteerT pin;
  pin.pin = "a";
  pin.gpu = source.back() == '0' ? "GPU-1" : "GPU-0";
  ASSERT_TRUE(machine.leader()->Steer(pin).ok());
  machine.DeafenProxies(true);
  for (int s = 0; s < 40; ++s) {
    if (machine.plan().StateOf(source) == PlaceState::kRetire) break;
    machine.Second();
  }
  machine.Seconds(10);  // it runs nothing in two of them
  EXPECT_EQ(machine.plan().StateOf(source), PlaceState::kRetire);
  machine.DeafenProxies(false);
  machine.Seconds(5);
  EXPECT_EQ(machine.plan().StateOf(source), PlaceState::kOff);
}

TEST(LeaderTest, ShiftedLoadMovesAModelThatAnswersAllTheTime) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  machine.ExpectAnswers();
  const std::vector<std::string> busy = MakeNeighboursBusy(&machine);
  ASSERT_GE(busy.size(), 2u);
  machine.Seconds(120);
  std::set<char> gpus;
  for (size_t i = 0; i < 2; ++i) {
    const auto serving = machine.Serving(busy[i]);
    ASSERT_EQ(serving.size(), 1u);
    gpus.insert(serving[0].back());
  }
  EXPECT_EQ(gpus.size(), 2u) << "both are still on one GPU";
  EXPECT_FALSE(machine.plan().move);
  EXPECT_EQ(machine.Running().size(), 3u);
}

TEST(LeaderTest, ModelsOfALostMachineRunElsewhereAndThoseOfASilentDaemonDoNot) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string gpu = Three().engines[0].gpu;  // of all places NAME-0
  const StandingPlan before = machine.plan();
  machine.KillDaemon(gpu, 1000);
  machine.Seconds(20);
  EXPECT_EQ(machine.plan().places, before.places);
  machine.leader()->SetLost({gpu});
  machine.Seconds(2);
  for (const char* model : {"a", "b", "c"}) {
    const std::vector<std::string> serving = machine.Serving(model);
    ASSERT_EQ(serving.size(), 1u) << model;
    EXPECT_EQ(serving[0].back(), '1') << model;
  }
}

TEST(LeaderTest, EngineOnTwoGpusMovesAsOneWhicheverOfThemIsDrained) {
  for (const bool first : {true, false}) {
    LeaderMachine machine(WithAPair());
    machine.Seconds(60);
    const std::vector<std::string> before = machine.Serving("d");
    ASSERT_EQ(before.size(), 1u);
    machine.ExpectAnswers();
    const std::vector<std::string> gpus = WithAPair().Engine(before[0])->Gpus();
    machine.Drain(first ? gpus[0] : gpus[1], true);
    machine.Seconds(200);
    const std::vector<std::string> after = machine.Serving("d");
    ASSERT_EQ(after.size(), 1u);
    EXPECT_NE(after, before);
    EXPECT_FALSE(machine.plan().move);
  }
}

TEST(LeaderTest, EngineOnTwoGpusRunsElsewhereOnceEitherIsLost) {
  for (const bool first : {true, false}) {
    LeaderMachine machine(WithAPair());
    machine.Seconds(60);
    const std::vector<std::string> before = machine.Serving("d");
    ASSERT_EQ(before.size(), 1u);
    const std::vector<std::string> gpus = WithAPair().Engine(before[0])->Gpus();
    const std::string lost = first ? gpus[0] : gpus[1];
    machine.KillDaemon(lost, 1000);
    machine.Seconds(20);
    EXPECT_EQ(machine.Serving("d"), before) << "silent is not lost";
    machine.leader()->SetLost({lost});
    machine.Seconds(2);  // sooner than a move
    ASSERT_EQ(machine.Serving("d").size(), 1u);
    EXPECT_NE(machine.Serving("d"), before);
  }
}

// A machine's node may be down while its daemons are well.
TEST(LeaderTest, NewLeaderWaitsForTheFirstWordOfALostMachinesDaemons) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string gpu = Three().engines[0].gpu;
  const StandingPlan before = machine.plan();
  machine.KillLeader(1);
  machine.KillDaemon(gpu, 4);  // silent for two beats of the new leader
  machine.Seconds(2);
  machine.leader()->SetLost({gpu});
  machine.Seconds(20);
  EXPECT_EQ(machine.plan().places, before.places);
}

TEST(LeaderTest, FrozenPlanMovesNoModelAndThawedOneDoes) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  wire::SteerT freeze, thaw;
  freeze.freeze = thaw.thaw = true;
  ASSERT_TRUE(machine.leader()->Steer(freeze).ok());
  const StandingPlan before = machine.plan();
  ASSERT_GE(MakeNeighboursBusy(&machine).size(), 2u);
  machine.Seconds(120);
  for (const Place& p : before.places) {
    EXPECT_EQ(machine.plan().StateOf(p.engine), p.state) << p.engine;
  }
  wire::PlanStateT state;
  machine.leader()->Describe(&state);
  EXPECT_NEAR(state.frozen_s, 120, 1);
  ASSERT_TRUE(machine.leader()->Steer(thaw).ok());
  machine.Seconds(60);
  EXPECT_GT(machine.plan().number, before.number);
  machine.leader()->Describe(&state);
  EXPECT_LT(state.frozen_s, 0);
}

TEST(LeaderTest, PinMovesAModelAndOutlivesTheLeader) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string from = machine.Serving("a").at(0);
  const std::string other = from == "a-0" ? "1" : "0";
  wire::SteerT pin;
  pin.pin = "a";
  pin.gpu = absl::StrCat("GPU-", other);
  ASSERT_TRUE(machine.leader()->Steer(pin).ok());
  machine.Seconds(3);
  machine.KillLeader(2);
  machine.Seconds(60);
  EXPECT_EQ(machine.Serving("a"),
            std::vector<std::string>{absl::StrCat("a-", other)});
  pin.gpu = "GPU-7";
  EXPECT_TRUE(absl::IsInvalidArgument(machine.leader()->Steer(pin)));
  wire::SteerT unpin;
  unpin.unpin = "b";
  EXPECT_TRUE(absl::IsInvalidArgument(machine.leader()->Steer(unpin)));
}

TEST(LeaderTest, ApplyMovesForASmallGain) {
  config::Fleet fleet = Three();
  fleet.planner.least_gain = 9;
  LeaderMachine machine(fleet);
  machine.Seconds(60);
  ASSERT_GE(MakeNeighboursBusy(&machine).size(), 2u);
  machine.Seconds(60);
  const StandingPlan before = machine.plan();
  machine.Seconds(60);
  EXPECT_EQ(machine.plan().number, before.number);
  wire::SteerT apply;
  apply.apply = true;
  ASSERT_TRUE(machine.leader()->Steer(apply).ok());
  machine.Seconds(60);
  EXPECT_GT(machine.plan().number, before.number);
  EXPECT_FALSE(machine.plan().applies) << "it has nothing left to do";
}

TEST(LeaderTest, TargetThatNeverServesIsGivenUp) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string from = machine.Serving("a").at(0);
  const std::string to = from == "a-0" ? "a-1" : "a-0";
  machine.ExpectAnswers();
  machine.Break(to);
  wire::SteerT pin;
  pin.pin = "a";
  pin.gpu = absl::StrCat("GPU-", to.substr(2));
  ASSERT_TRUE(machine.leader()->Steer(pin).ok());
  machine.Seconds(35);
  EXPECT_EQ(machine.Serving("a"), std::vector<std::string>{from});
}

TEST(LeaderTest, ModelWhoseEngineCannotServeGetsAnother) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string from = machine.Serving("a").at(0);
  machine.Break(from);
  machine.Seconds(150);
  EXPECT_EQ(machine.Serving("a"),
            std::vector<std::string>{from == "a-0" ? "a-1" : "a-0"});
}

TEST(LeaderTest, ModelsOfADrainedGpuMoveAwayOneByOneAndNoneComesBack) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  machine.ExpectAnswers();
  const std::string gpu = Three().engines[0].gpu;  // of all places NAME-0
  machine.Drain(gpu, true);
  machine.Seconds(100);
  for (const char* model : {"a", "b", "c"}) {
    EXPECT_EQ(machine.Serving(model),
              std::vector<std::string>{absl::StrCat(model, "-1")});
  }
  EXPECT_EQ(machine.Running(), (std::set<std::string>{"a-1", "b-1", "c-1"}));
  for (const char* model : {"a", "b"}) machine.SetRate(model, 18);
  machine.Seconds(200);
  EXPECT_EQ(machine.Running(), (std::set<std::string>{"a-1", "b-1", "c-1"}));
  machine.Drain(gpu, false);
  machine.Seconds(200);
  EXPECT_TRUE(machine.Running().count("a-0") + machine.Running().count("b-0"))
      << "the busy neighbours are separated again";
}

TEST(LeaderTest, DrainedModelsGoWhereADaemonAnswers) {
  config::Fleet fleet = FleetOf({1, 1}, 3);
  fleet.planner = Three().planner;
  LeaderMachine machine(fleet);
  machine.Seconds(60);
  machine.KillDaemon("GPU-1", 1000);
  machine.Seconds(5);
  machine.Drain("GPU-0", true);
  machine.Seconds(60);
  for (const char* model : {"a", "b"}) {
    for (const std::string& engine : machine.Serving(model)) {
      EXPECT_NE(engine.back(), '0') << engine << " is drained";
    }
  }
}

TEST(LeaderTest, DrainedReplicaEndsAndItsModelAnswersAllTheTime) {
  config::Fleet fleet = FleetOf({1}, 2);
  fleet.planner = Three().planner;
  fleet.models[0].replicas = 2;
  LeaderMachine machine(fleet);
  machine.SetRate("a", 18);
  machine.Seconds(200);
  ASSERT_EQ(machine.Serving("a").size(), 2u);
  machine.ExpectAnswers();
  machine.Drain("GPU-0", true);
  machine.Seconds(100);
  EXPECT_EQ(machine.Running(), std::set<std::string>{"a-1"});
}

TEST(LeaderTest, TargetThatNeverServesIsNotTriedWithoutPause) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string to = machine.Serving("a").at(0) == "a-0" ? "a-1" : "a-0";
  machine.Break(to);
  wire::SteerT pin;
  pin.pin = "a";
  pin.gpu = absl::StrCat("GPU-", to.substr(2));
  ASSERT_TRUE(machine.leader()->Steer(pin).ok());
  const uint64_t number = machine.plan().number;
  machine.Seconds(600);
  EXPECT_LE(machine.plan().number, number + 8);
}

TEST(LeaderTest, LostPlanFileDoesNotStopWhatServes) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const auto running = machine.Running();
  const uint64_t number = machine.plan().number;
  machine.KillLeader(1);
  std::filesystem::remove(machine.folder() + "/plan.json");
  machine.Seconds(60);
  EXPECT_EQ(machine.Running(), running);
  EXPECT_GT(machine.plan().number, number);
}

// Returns the path to which the next plan is written before it takes its place;
// a folder there acts like a full disk.
std::string DraftIn(const std::string& folder) {
  return absl::StrCat(folder, "/plan.json.", getpid(), ".new");
}

TEST(LeaderTest, FullDiskKeepsThePlanAndSaysSo) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const StandingPlan before = machine.plan();
  std::filesystem::create_directory(DraftIn(machine.folder()));
  ASSERT_GE(MakeNeighboursBusy(&machine).size(), 2u);
  machine.Seconds(60);
  EXPECT_EQ(machine.plan(), before);
  wire::PlanStateT state;
  machine.leader()->Describe(&state);
  ASSERT_FALSE(state.troubles.empty());
  EXPECT_NE(state.troubles.back().find("cannot write"), std::string::npos);
  ASSERT_EQ(state.troubles_s.size(), state.troubles.size());
  EXPECT_GT(state.troubles_s.back(), 1);
  EXPECT_LE(state.troubles_s.back(), 60);
  std::filesystem::remove(DraftIn(machine.folder()));
  machine.Seconds(60);
  EXPECT_GT(machine.plan().number, before.number);
}

TEST(LeaderTest, OtherFleetIsFollowedAtOnceAndPublishedOnceItCanBeWritten) {
  LeaderMachine machine(Three());
  machine.Seconds(60);
  const std::string gone = machine.Serving("a").at(0) == "a-0" ? "a-1" : "a-0";
  config::Fleet fleet = Three();
  fleet.engines.erase(
      std::find_if(fleet.engines.begin(), fleet.engines.end(),
                   [&](const auto& e) { return e.name == gone; }));
  const uint64_t number = machine.plan().number;
  std::filesystem::create_directory(DraftIn(machine.folder()));
  machine.leader()->SetFleet(fleet);
  machine.Seconds(3);
  EXPECT_EQ(machine.plan().Find(gone), nullptr);
  EXPECT_EQ(machine.plan().number, number);
  std::filesystem::remove(DraftIn(machine.folder()));
  machine.Seconds(3);
  EXPECT_GT(machine.plan().number, number);
}

}  // namespace
}  // namespace fineserve::lead
