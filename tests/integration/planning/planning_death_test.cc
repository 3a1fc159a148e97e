// A process dies during a move, in each state of the move. Then each model is
// served again by one engine, and requests that did not run on a killed engine
// are answered.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <map>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "tests/integration/planning/planning_site.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

enum class Actor { kLeader, kOtherDaemon, kUp, kTarget, kSource };

const char* NameOf(Actor actor) {
  switch (actor) {
    case Actor::kLeader:
      return "Leader";
    case Actor::kOtherDaemon:
      return "OtherDaemon";
    case Actor::kUp:
      return "FsctlUp";
    case Actor::kTarget:
      return "Target";
    case Actor::kSource:
      return "Source";
  }
  return "";
}

struct Death {
  Actor actor;
  const char* state;  // of the place that shows how far the move is

  std::string Name() const {
    return std::string(NameOf(actor)) + "In_" + state;
  }
};

// ctest's names of the tests.
void PrintTo(const Death& death, std::ostream* out) { *out << death.Name(); }

// Only one move runs at a time.
struct Moving {
  PlaceOf from, to;
};

class MovingSite : public PlanningSite {
 protected:
  void Kill(Actor actor, const Moving& move) {
    switch (actor) {
      case Actor::kLeader:
        return KillLeader();
      case Actor::kOtherDaemon:
        return KillDaemon(1 - Leader());
      case Actor::kUp:
        return KillUp();
      case Actor::kTarget:
        return KillEngine(move.to);
      case Actor::kSource:
        return KillEngine(move.from);
    }
  }

  // True if the place's pool was lost. That pool has no keeper, so fsctl up
  // starts these engines again in the next pool.
  bool IsOrphaned(const PlaceOf& place) const { return place.gpu == lost_gpu_; }

  static bool IsEngine(Actor actor) {
    return actor == Actor::kTarget || actor == Actor::kSource;
  }

  void KillUp() {
    up_->EndBy(SIGKILL);
    StartUp();
  }
  int Leader() {
    std::string leader;
    EXPECT_TRUE(Eventually([&] {
      const auto plan = See();
      if (plan) leader = plan->leader;
      return !leader.empty();
    }));
    return GpuWithUuid(leader);
  }

  int lost_gpu_ = -1;  // whose pool has gone

 private:
  // Kills the leader, and starts it again as systemd would, but only once the
  // other daemon leads.
  void KillLeader() {
    const int leader = lost_gpu_ = Leader();
    daemons_[leader]->EndBy(SIGKILL);
    EXPECT_TRUE(Eventually([&] {
      const auto plan = See();
      return plan && plan->leader == gpus_[1 - leader];
    })) << "no daemon has taken the lead";
    StartDaemonOn(leader);
  }
  void KillDaemon(int gpu) {
    lost_gpu_ = gpu;
    daemons_[gpu]->EndBy(SIGKILL);
    StartDaemonOn(gpu);
  }
};

class PlanningDeathTest : public MovingSite,
                          public ::testing::WithParamInterface<Death> {
 protected:
  // Long enough that everything is served again before the next move. The
  // cool-down begins with the leader, so the first move comes as soon as with a
  // shorter one.
  int CoolDownSeconds() const override { return 6; }

  // Waits for a move in the state of the parameter, and returns it.
  std::optional<Moving> AwaitMove() {
    const std::string state = GetParam().state;
    const auto place = AwaitState(state);
    if (!place) return std::nullopt;
    const PlaceOf other = {place->model, 1 - place->gpu};
    return state == "start" ? Moving{other, *place} : Moving{*place, other};
  }
};

TEST_P(PlanningDeathTest, AllIsServedAgain) {
  StartAll();
  const Neighbours they = FindNeighbours();
  const auto before = See();
  ASSERT_TRUE(before);
  const PlaceOf bystander = {they.other, ServingGpu(*before, they.other)};
  const pid_t bystander_pid = PidOf(bystander);
  BeginLoads(they.a, they.b);
  // Asks nothing between the move and the kill, because the state does not
  // last.
  const auto move = AwaitMove();
  ASSERT_TRUE(move) << Fsctl({"plan"}).out;
  Kill(GetParam().actor, *move);
  EXPECT_TRUE(Settles()) << Fsctl({"plan"}).out << up_->Stderr();
  if (!IsOrphaned(bystander)) {
    EXPECT_EQ(PidOf(bystander), bystander_pid)
        << "an engine that had no part in it was started again";
  }
  EndLoads();
  EXPECT_EQ(Count(Ending::kWrong), 0);
  const int lost = Count(Ending::kErrorEvent) + Count(Ending::kCut);
  EXPECT_LE(lost, IsEngine(GetParam().actor) ? kClients : 0)
      << "more than ran on a killed engine\n"
      << up_->Stderr();
  if (!IsEngine(GetParam().actor)) {
    EXPECT_EQ(Count(Ending::kBadGateway), 0);
  }
  RecordProperty("right", Count(Ending::kRight));
  RecordProperty("refused", Count(Ending::kRefused));
  RecordProperty("bad_gateway", Count(Ending::kBadGateway));
  RecordProperty("lost", lost);
}

// Moves one model back and forth, and kills a process in each move, on one
// site. FINESERVE_MOVE_KILLS sets another number of deaths: 450 are 50 of each
// process in each step. No engine is killed, because its move would be undone,
// and not tried again for a long time.
class ManyDeathsTest : public MovingSite,
                       public ::testing::WithParamInterface<bool> {
 protected:
  // A step of a move: the state of a place that shows it, and the time within
  // which a process is killed at random, about as long as the step takes.
  struct Step {
    const char* state;
    unsigned within_us;
  };
  struct OneDeath {
    Actor actor;
    Step step;
    bool keeper_lives;  // then the next daemon takes the pool over
  };

  // If places rest, all moves except the first are evictions and activations,
  // as long as pools last.
  bool PlacesRest() const override { return GetParam(); }
  std::vector<std::string> FlagsOfDaemon(int /*gpu*/) const override {
    return {"--supervise"};
  }

  // Returns the death with this number. The first three differ in everything
  // except the keeper.
  static OneDeath DeathOf(int number) {
    constexpr Actor kActors[] = {Actor::kUp, Actor::kLeader,
                                 Actor::kOtherDaemon};
    constexpr Step kSteps[] = {
        {"start", 400'000},   // the target comes to its GPU
        {"retire", 400'000},  // the source answers what it has
        {"off", 1'500'000}};  // the source leaves its GPU, or ends
    return {kActors[number % 3], kSteps[(number + number / 3) % 3],
            number / 9 % 2 == 0};
  }

  void MoveAndKill(const OneDeath& death) {
    const Moving move = {{0, at_}, {0, 1 - at_}};
    const auto pids = Pids();
    ASSERT_TRUE(Eventually([&] { return OrderMove(0, move.to.gpu); }));
    ASSERT_TRUE(process::BecomesTrue(
        [&] { return HasReached(death.step, move); }, kConvergence))
        << Fsctl({"plan"}).out;
    usleep(static_cast<unsigned>(random_()) % death.step.within_us);
    Kill(death);
    ASSERT_TRUE(process::BecomesTrue(
        [&] {
          const auto plan = See();
          return plan && ServingGpu(*plan, 0) == move.to.gpu && IsSettled() &&
                 SlabsOfTheDead() == 0;
        },
        kConvergence))
        << Fsctl({"plan"}).out << Fsctl({"engines"}).out << up_->Stderr();
    at_ = move.to.gpu;
    if (!PlacesRest() || lost_gpu_ >= 0) return;
    for (const auto& [place, pid] : Pids()) {
      const auto before = pids.find(place);
      if (before == pids.end()) continue;
      EXPECT_EQ(pid, before->second) << place << " was started again";
    }
  }

  // Expects that everything that engines had is free once they have ended.
  void ExpectThatNothingIsLeft() {
    EXPECT_EQ(up_->EndBy(SIGTERM), 0) << up_->Stderr();
    EXPECT_TRUE(Pids().empty());
    std::vector<pid_t> daemons;
    for (const std::string& socket : Sockets()) {
      EXPECT_TRUE(Eventually([&] {
        return CountSlabs(TableAt(socket), [](const abi::SlabWord& word) {
                 return word.engine != 0 ||
                        word.state == abi::SlabState::kZeroing;
               }) == 0;
      })) << Fsctl({"slabs"}).out;
      daemons.push_back(static_cast<pid_t>(TableAt(socket).daemon_pid));
    }
    EXPECT_TRUE(Eventually([&] { return StoreBytesIn(daemons) == 0; }))
        << Fsctl({"store"}).out;
  }

  const unsigned seed_ = static_cast<unsigned>(process::FromEnvironment(
      "FINESERVE_SEED", static_cast<int>(process::RandomSeed())));
  std::mt19937 random_{seed_};
  int at_ = 0;  // the GPU of the model that moves

 private:
  template <typename IsIt>
  static int CountSlabs(const abi::TableSnapshot& table, IsIt is_it) {
    int count = 0;
    for (const auto& slab : table.slabs) count += is_it(slab.word);
    return count;
  }
  // That wait for the driver.
  int SlabsOfTheDead() {
    int count = 0;
    for (const std::string& socket : Sockets()) {
      count += CountSlabs(TableAt(socket), [](const abi::SlabWord& word) {
        return word.state == abi::SlabState::kQuarantined;
      });
    }
    return count;
  }
  // True if the move has reached the step. A step may be over before it is
  // seen.
  bool HasReached(const Step& step, const Moving& move) {
    const auto plan = See();
    if (!plan) return false;
    const std::string state = step.state;
    const PlaceOf& its = state == "start" ? move.to : move.from;
    return plan->states.at(EngineName(its)) == state ||
           plan->states.at(EngineName(move.from)) == "off";
  }
  // Returns the processes of all places that have one.
  std::map<std::string, pid_t> Pids() const {
    std::map<std::string, pid_t> pids;
    for (int model = 0; model < kModels; ++model) {
      for (int gpu = 0; gpu < kGpus; ++gpu) {
        const pid_t pid = PidOf({model, gpu});
        if (pid != 0) pids[EngineName({model, gpu})] = pid;
      }
    }
    return pids;
  }
  std::string SocketOn(int gpu) const {
    return finding::ListSockets(folder() + "/run", gpus_[gpu]).at(0);
  }
  void Kill(const OneDeath& death) {
    if (death.actor == Actor::kUp) return KillUp();
    const int gpu = death.actor == Actor::kLeader ? Leader() : 1 - Leader();
    const std::string socket = SocketOn(gpu);
    const auto pid = static_cast<pid_t>(TableAt(socket).daemon_pid);
    if (death.keeper_lives) {
      ASSERT_TRUE(process::SignalOne(pid, SIGKILL));
      ASSERT_TRUE(Eventually([&] {
        const auto link = abi::ConnectObserver(socket, absl::Milliseconds(200));
        if (!link.ok()) return false;
        const auto table = abi::ReadTable(link->table.get());
        return table.ok() && static_cast<pid_t>(table->daemon_pid) != pid;
      })) << daemons_[gpu]->Stderr();
      return;
    }
    lost_gpu_ = gpu;
    daemons_[gpu]->Signal(SIGSTOP);
    process::SignalOne(pid, SIGKILL);
    daemons_[gpu]->EndBy(SIGKILL);
    StartDaemonOn(gpu);
  }
};

TEST_P(ManyDeathsTest, ModelMovesBackAndForthWhateverDies) {
  SCOPED_TRACE(testing::Message() << "FINESERVE_SEED=" << seed_);
  StartAll();
  const auto before = See();
  ASSERT_TRUE(before);
  at_ = ServingGpu(*before, 0);
  BeginLoads(0, 1);
  const int deaths = process::FromEnvironment("FINESERVE_MOVE_KILLS", 3);
  for (int i = 0; i < deaths && !HasFailure(); ++i) {
    const OneDeath death = DeathOf(i);
    SCOPED_TRACE(testing::Message()
                 << "death " << i << ": " << NameOf(death.actor) << " in "
                 << death.step.state
                 << (death.keeper_lives ? "" : ", with its keeper"));
    MoveAndKill(death);
  }
  EndLoads();
  EXPECT_EQ(Count(Ending::kWrong), 0);
  EXPECT_EQ(Count(Ending::kErrorEvent), 0);
  EXPECT_EQ(Count(Ending::kCut), 0);
  EXPECT_EQ(Count(Ending::kBadGateway), 0);
  printf("%d deaths: %d answers right, %d refused\n", deaths,
         Count(Ending::kRight), Count(Ending::kRefused));
  if (HasFailure()) {
    for (const auto& daemon : daemons_) fputs(daemon->Stderr().c_str(), stderr);
  }
  ExpectThatNothingIsLeft();
}

// The stopped leader holds its lock, and wakes up with the plan that it had.
TEST_F(PlanningSite, StoppedLeaderLosesTheLeadAndFollowsWhenItWakesUp) {
  StartAll();
  const auto before = See();
  ASSERT_TRUE(before);
  const int leader = GpuWithUuid(before->leader);
  daemons_[leader]->Signal(SIGSTOP);
  const auto other_leads = [&] {
    const auto plan = See();
    return plan && plan->leader == gpus_[1 - leader];
  };
  // fsctl waits seconds for an answer of the stopped daemon, so the log of the
  // other daemon is read first.
  const Process& other = *daemons_[1 - leader];
  EXPECT_TRUE(process::BecomesTrue(
      [&] { return other.Stderr().find("leading:") != std::string::npos; },
      kConvergence));
  EXPECT_TRUE(process::BecomesTrue(other_leads, kConvergence));
  daemons_[leader]->Signal(SIGCONT);
  const auto all_agree = [&] {
    const std::string said = Fsctl({"plan"}).out;
    return said.find("older plan") == std::string::npos &&
           said.find("no fineserved answers") == std::string::npos;
  };
  EXPECT_TRUE(process::BecomesTrue(all_agree, kConvergence))
      << Fsctl({"plan"}).out;
  EXPECT_TRUE(Settles()) << Fsctl({"plan"}).out;
  EXPECT_TRUE(other_leads());
}

INSTANTIATE_TEST_SUITE_P(Places, ManyDeathsTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Rest" : "End";
                         });

// ManyDeathsTest kills other processes in each step.
INSTANTIATE_TEST_SUITE_P(Each, PlanningDeathTest,
                         ::testing::Values(Death{Actor::kLeader, "start"},
                                           Death{Actor::kOtherDaemon, "retire"},
                                           Death{Actor::kUp, "start"},
                                           Death{Actor::kTarget, "start"},
                                           Death{Actor::kTarget, "retire"},
                                           Death{Actor::kSource, "start"},
                                           Death{Actor::kSource, "retire"}),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace fineserve::integration
