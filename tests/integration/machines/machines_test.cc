// A fleet of three machines when one of them, its link, its leader or etcd
// fails. Every answer to a request is right; two machines never lead at the
// same moment (MachinesSite); and the fleet agrees again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/integration/machines/held_plan.h"
#include "tests/integration/machines/machines_site.h"
#include "tools/lab/process/from_environment.h"

namespace fineserve::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kTtl(5);  // of a machine's lease

// Returns how long a leader is stopped: by default until all machines know that
// its machine is lost.
std::chrono::seconds SleepTime() {
  return process::FromEnvironment("FINESERVE_SLEEP_TTLS", 2) * kTtl;
}

std::vector<int> Without(int machine) {
  std::vector<int> others;
  for (int i = 0; i < kMachines; ++i) {
    if (i != machine) others.push_back(i);
  }
  return others;
}

// Returns the names of the engines that the plan lets serve on the machine's
// GPU.
std::set<std::string> ServingOn(const std::string& plan, int machine) {
  std::set<std::string> serving;
  for (int i = 0;; ++i) {
    const std::string place = "/places/" + std::to_string(i);
    const std::string engine = JsonText(plan, place + "/engine");
    if (engine.empty()) return serving;
    if (JsonText(plan, place + "/state") == "off") continue;
    if (engine.back() == '0' + machine) serving.insert(engine);
  }
}

TEST_F(MachinesSite, ALostLeaderIsFollowedAndItsModelsRunElsewhere) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const int lost = Leader();
  ASSERT_GE(lost, 0);
  const uint64_t term = Term();
  const std::vector<int> others = Without(lost);
  BeginLoads(others);
  Show(others[0], {"nodes"});
  Show(others[0], {"models"});
  network_->between()->SetLink(lost, false);
  EXPECT_TRUE(Becomes("another machine leads",
                      [&] { return Term() > term && Leader() != lost; }));
  EXPECT_TRUE(Becomes("its plan puts the lost one's models elsewhere", [&] {
    const Finished plan = FsctlOn(others[0], {"plan", "--json"});
    return plan.code == 0 && ServingOn(plan.out, lost).empty();
  }));
  EXPECT_TRUE(Becomes("all models answer at the others", [&] {
    return AnswersAt(others[0]) && AnswersAt(others[1]);
  }));
  EndLoads("the leader's link down, clients of the others");
  const Finished doctor = FsctlOn(lost, {"doctor"});
  EXPECT_THAT(doctor.out, HasSubstr("no model moves"));
  EXPECT_TRUE(Becomes("fsctl nodes says who is lost", [&] {
    const Finished nodes = FsctlOn(others[0], {"nodes", "--json"});
    return JsonText(nodes.out,
                    "/machines/" + std::to_string(lost) + "/state") == "lost";
  }));
  Show(others[0], {"nodes"});
  Show(others[0], {"models"});
  Show(others[0], {"plan", "--history"});

  network_->between()->SetLink(lost, true);
  EXPECT_TRUE(Becomes("all machines agree again", [&] {
    return Agree({0, 1, 2});
  }));
  EXPECT_TRUE(Becomes("all models answer everywhere", [&] {
    return AnswersAt(0) && AnswersAt(1) && AnswersAt(2);
  }));
}

TEST_F(MachinesSite, ALeaderThatSleptChangesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const int sleeper = Leader();
  ASSERT_GE(sleeper, 0);
  const uint64_t term = Term();
  BeginLoads(Without(sleeper));
  const auto held = HoldBeforePlan(machines_[sleeper].daemon->pid());
  EXPECT_NE(held, nullptr) << "ptrace is not permitted, or it tells no plan";
  SignalPlanners(sleeper, SIGSTOP);
  const auto slept = std::chrono::steady_clock::now();
  EXPECT_TRUE(Becomes("another machine leads",
                      [&] { return Term() > term && Leader() != sleeper; }));
  // Any plan that the sleeper would send now is of an older term, however high
  // its number.
  EXPECT_TRUE(Becomes("the others go by that one's plans",
                      [&] { return Agree(Without(sleeper)); }));
  for (const int other : Without(sleeper)) {
    EXPECT_THAT(TellPlan(other, term, 1'000'000'000), HasSubstr("is older"));
  }
  const auto refused = [&] {
    uint64_t plans = 0;
    for (const int i : Without(sleeper)) plans += ReportOf(i).plans_refused;
    return plans;
  };
  const uint64_t before_waking = refused();
  EXPECT_EQ(before_waking, 2u) << "those above";
  std::this_thread::sleep_until(slept + SleepTime());
  EXPECT_EQ(refused(), before_waking);
  SignalPlanners(sleeper, SIGCONT);
  if (held != nullptr) held->Release();
  // The sleeper may send its plan twice before it learns that it no longer
  // leads.
  EXPECT_TRUE(Becomes("the plan that it tells as it wakes is refused",
                      [&] { return refused() > before_waking; }));
  EXPECT_TRUE(Becomes("all machines agree again, the sleeper too", [&] {
    return Agree({0, 1, 2});
  }));
  EXPECT_GT(Term(), term);
  EndLoads("the leader asleep, clients of the others");
  EXPECT_TRUE(Becomes("fsctl nodes says that plans were refused", [&] {
    const std::string said = FsctlOn(sleeper, {"nodes"}).out;
    return said.find("plans were refused") != std::string::npos;
  }));
  Show(sleeper, {"nodes"});
}

TEST_F(MachinesSite, AFleetWhoseEtcdLostItsMajorityServes) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const uint64_t before = View(0)->plan_number;
  const Finished plan = FsctlOn(0, {"plan", "--json"});
  machines_[0].etcd->Signal(SIGKILL);
  machines_[1].etcd->Signal(SIGKILL);
  EXPECT_TRUE(Becomes("all know that etcd has no majority", [&] {
    for (int i = 0; i < kMachines; ++i) {
      if (!View(i) || View(i)->has_quorum) return false;
    }
    return true;
  }));
  BeginLoads({0, 1, 2});
  EXPECT_TRUE(AnswersAt(0) && AnswersAt(1) && AnswersAt(2));
  EXPECT_THAT(FsctlOn(2, {"doctor"}).out, HasSubstr("no model moves"));
  const Finished frozen = FsctlOn(0, {"plan", "--json"});
  EXPECT_EQ(JsonAt(frozen.out, "/number"), JsonAt(plan.out, "/number"));
  EXPECT_NE(FsctlOn(0, {"plan", "--freeze"}).code, 0) << "no machine leads";
  EndLoads("etcd without a majority");
  EXPECT_EQ(Count(Ending::kRefused), 0);
  StartEtcd(0);
  StartEtcd(1);
  EXPECT_TRUE(Becomes("all machines agree again", [&] {
    return Agree({0, 1, 2});
  }));
  EXPECT_GE(View(0)->plan_number, before);
}

// Returns the ports on which programs of that machine listen beyond loopback.
// The kernel's list has lines such as " 0: 0100007F:1F40 00000000:0000 0A …":
// the address in hexadecimal, least byte first on this processor, and 0A if the
// socket listens.
std::set<int> PortsBeyondLoopback(const std::string& list) {
  std::set<int> ports;
  for (const absl::string_view line : absl::StrSplit(list, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 4 || words[3] != "0A") continue;
    const std::vector<std::string> own = absl::StrSplit(words[1], ':');
    const bool is_loopback =
        (own[0].size() == 8 && absl::EndsWith(own[0], "7F")) ||
        own[0] == "00000000000000000000000001000000";
    if (!is_loopback) ports.insert(std::stoi(own[1], nullptr, 16));
  }
  return ports;
}

// Ports of etcd and of the engines do not count, because those programs are not
// ours.
TEST_F(MachinesSite, BeyondLoopbackOnlyTheDaemonListensWithItsKeys) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  for (int i = 0; i < kMachines; ++i) {
    const Finished list = RunToEnd(
        network_->On(i, {"cat", "/proc/net/tcp", "/proc/net/tcp6"}), {});
    std::set<int> ports = PortsBeyondLoopback(list.out);
    for (const process::EtcdAddress& member : Members()) {
      ports.erase(member.client_port);
      ports.erase(member.peer_port);
    }
    for (const int engine : EnginePorts()) ports.erase(engine);
    EXPECT_THAT(ports, ElementsAre(7480)) << list.out;
  }
}

TEST_F(MachinesSite, AnyMachineShowsAndSteersAll) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  for (int i = 0; i < kMachines; ++i) {
    const Finished models = FsctlOn(i, {"models", "--json"});
    EXPECT_EQ(models.code, 0) << models.err;
    for (int m = 0; m < kMachines; ++m) {
      // The model has an engine on each of the three machines.
      const std::string engine =
          "/models/" + std::to_string(m) + "/engines/2/name";
      EXPECT_NE(JsonText(models.out, engine), "") << models.out;
    }
  }
  EXPECT_THAT(FsctlOn(0, {"apply", fleet_path(), "--dry-run"}).out,
              HasSubstr("this is about this machine only; the fleet has 3"));
  const int other = (Leader() + 1) % kMachines;
  const Finished frozen = FsctlOn(other, {"plan", "--freeze"});
  EXPECT_EQ(frozen.code, 0) << frozen.err;
  EXPECT_EQ(JsonAt(FsctlOn(other, {"plan", "--json"}).out, "/frozen"), "true");
  EXPECT_EQ(FsctlOn(other, {"plan", "--thaw"}).code, 0);
}

class DrainTest : public MachinesSite {
 protected:
  // True if that engine drains, as machine `from` shows it.
  bool Drains(int from, const std::string& engine) {
    std::string models;
    // The daemon of a busy machine may take longer to answer than fsctl waits.
    EXPECT_TRUE(Becomes("all daemons have answered", [&] {
      const Finished shown = FsctlOn(from, {"models", "--json"});
      models = shown.out;
      return shown.code == 0;
    }));
    for (int m = 0; m < kMachines; ++m) {
      for (int e = 0; e < kMachines; ++e) {
        const std::string at =
            "/models/" + std::to_string(m) + "/engines/" + std::to_string(e);
        if (JsonText(models, at + "/name") != engine) continue;
        return JsonAt(models, at + "/drains") == "true";
      }
    }
    ADD_FAILURE() << "no engine " << engine << ": " << models;
    return false;
  }

  // Drains the machine, under the name `target`, from another machine until
  // none of its engines is left, and then lets it serve again.
  void DrainUnderLoad(int machine, const std::string& target) {
    BeginLoads({0, 1, 2});
    const int from = (machine + 1) % kMachines;
    const Finished drained = FsctlOn(from, {"drain", target});
    EXPECT_EQ(drained.code, 0) << drained.err;
    EXPECT_TRUE(Drains(from, "c-" + std::to_string(machine)));
    EXPECT_FALSE(Drains(from, "c-" + std::to_string(from)));
    EXPECT_TRUE(Becomes("no engine of " + target + " is left", [&] {
      const Finished plan = FsctlOn(from, {"plan", "--json"});
      return plan.code == 0 && ServingOn(plan.out, machine).empty();
    }));
    EXPECT_TRUE(AnswersAt(0) && AnswersAt(1) && AnswersAt(2));
    EXPECT_EQ(FsctlOn(from, {"drain", "--undo", target}).code, 0);
    EXPECT_FALSE(Drains(from, "c-" + std::to_string(machine)));
    EndLoads(target + " drained");
    EXPECT_EQ(Count(Ending::kRefused), 0);
  }
};

TEST_F(DrainTest, AnEngineIsDrainedFromAnyMachine) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  // Drains each engine from a machine other than its own.
  for (int i = 0; i < kMachines; ++i) {
    const int from = (i + 1) % kMachines;
    const std::string engine = "a-" + std::to_string(i);
    EXPECT_TRUE(Becomes(engine + " is drained", [&] {
      return FsctlOn(from, {"drain", engine}).code == 0;
    }));
    EXPECT_TRUE(Drains(i, engine));
    EXPECT_TRUE(Becomes(engine + " is not drained", [&] {
      return FsctlOn(from, {"drain", "--undo", engine}).code == 0;
    }));
    EXPECT_FALSE(Drains(from, engine));
  }
  EXPECT_EQ(FsctlOn(0, {"drain", "a-7"}).code, 2);
}

TEST_F(DrainTest, AGpuIsDrainedByItsUuidFromAnotherMachine) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  DrainUnderLoad(0, machines_[0].gpu);
}

TEST_F(DrainTest, AMachineIsDrainedByItsNameFromTheLastOne) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  DrainUnderLoad(1, "m1");
}

TEST_F(DrainTest, TheLastMachineIsDrainedByItsNameFromTheFirst) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  DrainUnderLoad(2, "m2");
}

TEST_F(MachinesSite, StatusOfOneMachineTellsOfTheOthers) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  for (int i = 0; i < kMachines; ++i) {
    const Finished status = FsctlOn(i, {"status"});
    EXPECT_EQ(status.code, 0) << status.out << status.err;
  }
  machines_[2].daemon->EndBy(SIGKILL);
  EXPECT_TRUE(Becomes("another machine's status tells of a dead daemon", [&] {
    const Finished status = FsctlOn(0, {"status"});
    return status.code == 1 &&
           status.out.find("machine m2: no fineserved of " +
                           machines_[2].gpu) != std::string::npos;
  }));
}

}  // namespace
}  // namespace fineserve::integration
