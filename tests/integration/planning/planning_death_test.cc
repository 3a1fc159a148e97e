// A process dies during a move, in any of its states: all models are served
// again by one engine each, and requests that did not run on a killed engine
// are answered.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>

#include <iterator>
#include <ostream>
#include <string>

#include "tests/integration/planning/planning_site.h"
#include "tools/lab/process/from_environment.h"

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
        up_->EndBy(SIGKILL);
        return StartUp();
      case Actor::kTarget:
        return KillEngine(move.to);
      case Actor::kSource:
        return KillEngine(move.from);
    }
  }

  // Its pool has no keeper, so fsctl up starts these engines again in the next
  // pool.
  bool IsOrphaned(const PlaceOf& place) const { return place.gpu == lost_gpu_; }

  static bool IsEngine(Actor actor) {
    return actor == Actor::kTarget || actor == Actor::kSource;
  }

 private:
  int Leader() {
    std::string leader;
    EXPECT_TRUE(Eventually([&] {
      const auto plan = See();
      if (plan) leader = plan->leader;
      return !leader.empty();
    }));
    return GpuWithUuid(leader);
  }
  // Started again, as systemd would, but only once the other one leads.
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

  int lost_gpu_ = -1;  // whose pool has gone
};

class PlanningDeathTest : public MovingSite,
                          public ::testing::WithParamInterface<Death> {
 protected:
  // So that all is served again before the next move. It begins to count with
  // the leader, so the first move comes as soon as with a shorter one.
  int CoolDownSeconds() const override { return 6; }

  // The move that is in the state of the parameter.
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
  // Nothing is asked between the move and the kill: the state does not last.
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

class RestingDeathTest : public MovingSite {
 protected:
  bool PlacesRest() const override { return true; }
};

// Its moves are evictions and activations, but for the first one and those to
// a place whose process has died. No engine is killed: its move would be
// undone, and not be tried again for long. FINESERVE_MOVE_KILLS sets another
// number.
TEST_F(RestingDeathTest, ModelMovesBackAndForthWhateverDies) {
  StartAll();
  const auto before = See();
  ASSERT_TRUE(before);
  int at = ServingGpu(*before, 0);
  BeginLoads(0, 1);
  const Actor actors[] = {Actor::kUp, Actor::kLeader, Actor::kOtherDaemon};
  const char* const states[] = {"start", "retire", "off"};
  const int kills = process::FromEnvironment("FINESERVE_MOVE_KILLS", 3);
  for (int i = 0; i < kills; ++i) {
    const Moving move = {{0, at}, {0, 1 - at}};
    const std::string state = states[i % std::size(states)];
    EXPECT_TRUE(Eventually([&] { return OrderMove(0, move.to.gpu); }));
    // A state may be over before it is seen.
    EXPECT_TRUE(process::BecomesTrue(
        [&] {
          const auto plan = See();
          if (!plan) return false;
          const PlaceOf& its = state == "start" ? move.to : move.from;
          return plan->states.at(EngineName(its)) == state ||
                 plan->states.at(EngineName(move.from)) == "off";
        },
        kConvergence));
    const Actor actor = actors[i % std::size(actors)];
    Kill(actor, move);
    EXPECT_TRUE(process::BecomesTrue(
        [&] {
          const auto plan = See();
          if (!plan || !IsSettled()) return false;
          at = ServingGpu(*plan, 0);
          return at == move.to.gpu;
        },
        kConvergence))
        << NameOf(actor) << " in " << state << "\n"
        << Fsctl({"plan"}).out << up_->Stderr();
  }
  EndLoads();
  EXPECT_EQ(Count(Ending::kWrong), 0);
  printf("%d kills: %d answers right, %d refused, %d lost\n", kills,
         Count(Ending::kRight), Count(Ending::kRefused),
         Count(Ending::kErrorEvent) + Count(Ending::kCut) +
             Count(Ending::kBadGateway));
}

// It holds its lock, and wakes up with the plan that it had.
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
  // other one is read first.
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

INSTANTIATE_TEST_SUITE_P(Each, PlanningDeathTest,
                         ::testing::Values(Death{Actor::kLeader, "start"},
                                           Death{Actor::kLeader, "retire"},
                                           Death{Actor::kOtherDaemon, "start"},
                                           Death{Actor::kOtherDaemon, "retire"},
                                           Death{Actor::kUp, "start"},
                                           Death{Actor::kUp, "retire"},
                                           Death{Actor::kTarget, "start"},
                                           Death{Actor::kTarget, "retire"},
                                           Death{Actor::kSource, "start"},
                                           Death{Actor::kSource, "retire"}),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace fineserve::integration
