// Repeats kill -9 of the daemon, at any moment, while engines serve and its
// parent keeps the pool. No engine ends, none sees another's bytes, slabs keep
// moving between them, and none is lost. Each run of the tests has a few kills;
// FINESERVE_DAEMON_KILLS sets another number, FINESERVE_POOL_MIB and
// FINESERVE_SLAB_MIB another pool (96 in slabs of 4).

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/observer_link.h"
#include "tests/integration/site.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::integration {
namespace {

using process::Eventually;
using process::FromEnvironment;
using ::testing::HasSubstr;
using ::testing::Not;
using workload::Quantile;

class DaemonRestartTest : public Site {
 protected:
  DaemonRestartTest() {
    Set("EMUCUDA_MEMORY", std::to_string(pool_mib_ + 4096) + "MiB");
    StartPool();
  }

  void StartPool() {
    supervisor_ = StartDaemon(
        {"--supervise", "--pool", std::to_string(pool_mib_) + "MiB", "--slab",
         std::to_string(slab_mib_) + "MiB", "--planes", "2"});
  }

  std::unique_ptr<Process> StartView(const std::string& name,
                                     const std::string& format) {
    return StartRandomView(
        name,
        Words(absl::StrCat("--seed ", seed_, " --most ", 175 * slab_mib_,
                           " --watermark ", 25 * slab_mib_, " ", format)));
  }

  static std::string NameOf(pid_t pid) {
    std::string name;
    std::ifstream(absl::StrCat("/proc/", pid, "/comm")) >> name;
    return name;
  }

  // Replaces an engine's program twice. Each program finds the slabs free that
  // the former one held.
  void ReplaceAnEngineTwice() {
    const uint32_t most =
        pool_slabs_ / 3;  // of a layer; two fill more than half
    const auto engine = StartEngine(std::to_string(most * slab_mib_) + "MiB");
    for (int image = 2; image < 4; ++image) {
      EXPECT_EQ(SlabsOf(engine->pid()), 2 * most);
      const auto daemon = static_cast<pid_t>(Table().daemon_pid);
      ASSERT_GT(daemon, 0);
      supervisor_->Signal(SIGSTOP);
      ASSERT_TRUE(process::SignalOne(daemon, SIGKILL));
      engine->Tell("exec");
      EXPECT_TRUE(Eventually([&] { return NameOf(engine->pid()) == "sh"; }));
      supervisor_->Signal(SIGCONT);
      EXPECT_TRUE(Eventually([&] { return TableIfServed().has_value(); }));
      EXPECT_TRUE(EventuallyFree(pool_slabs_)) << "image " << image;
      engine->Tell("go");
      EXPECT_EQ(engine->ReadLineWith("kv zero"), "kv zero: yes");
      EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
    }
  }

  // Kills the daemon, and waits until another has taken the pool over.
  void Kill() {
    const abi::TableSnapshot before = Table();
    const absl::Time at = absl::Now();
    ASSERT_TRUE(KillDaemonOf(before));
    ASSERT_TRUE(Eventually([&] {
      const auto now = TableIfServed();
      return now && now->daemon_pid != before.daemon_pid &&
             now->daemons > before.daemons;
    })) << supervisor_->Stderr();
    back_ms_.push_back(absl::ToDoubleMilliseconds(absl::Now() - at));
    EXPECT_EQ(Table().epoch, before.epoch);
    const uint64_t moved = Table().counters.slabs_returned;
    ASSERT_TRUE(Eventually([&] {
      return Table().counters.slabs_returned > moved + 1;
    })) << "slabs stopped moving: "
        << supervisor_->Stderr();
    moves_ms_.push_back(absl::ToDoubleMilliseconds(absl::Now() - at));
  }

  const unsigned seed_ = static_cast<unsigned>(FromEnvironment(
      "FINESERVE_SEED", static_cast<int>(process::RandomSeed())));
  const int pool_mib_ = FromEnvironment("FINESERVE_POOL_MIB", 96);
  const int slab_mib_ = FromEnvironment("FINESERVE_SLAB_MIB", 4);
  const uint32_t pool_slabs_ = static_cast<uint32_t>(pool_mib_ / slab_mib_);
  std::mt19937 random_{seed_};
  std::unique_ptr<Process> supervisor_;
  std::vector<double> back_ms_;
  std::vector<double> moves_ms_;
};

TEST_F(DaemonRestartTest, EnginesServeOnAndSlabsGoOnMovingAndNoneIsLost) {
  SCOPED_TRACE(testing::Message() << "FINESERVE_SEED=" << seed_);
  const int kills = FromEnvironment("FINESERVE_DAEMON_KILLS", 10);
  std::vector<std::unique_ptr<Process>> engines;
  engines.push_back(StartView("a", "--page 33792"));
  engines.push_back(StartView("b", "--page 65536 --planes 2"));
  engines.push_back(StartView("c", "--page 18432 --planes 2 --mode guarded"));
  engines.push_back(StartEngine(std::to_string(slab_mib_) + "MiB"));
  const uint32_t whole = SlabsOf(engines.back()->pid());
  EXPECT_EQ(whole, 2u);
  for (int i = 0; i < kills; ++i) {
    // Otherwise its parent would pause before the next start.
    usleep(200'000 + random_() % 30'000);
    ASSERT_NO_FATAL_FAILURE(Kill()) << "kill " << i;
    for (const auto& engine : engines) {
      ASSERT_TRUE(engine->alive()) << "ended at kill " << i << ": "
                                   << engine->ReadAll() << engine->Stderr();
    }
    ASSERT_EQ(SlabsOf(engines.back()->pid()), whole);
  }
  printf(
      "%d kills: the next daemon answered after %.1f ms (p99 %.1f), slabs "
      "had moved again after %.1f ms (p99 %.1f)\n",
      kills, Quantile(back_ms_, .5), Quantile(back_ms_, .99),
      Quantile(moves_ms_, .5), Quantile(moves_ms_, .99));
  for (const auto& engine : engines) engine->Signal(SIGTERM);
  for (const auto& engine : engines) engine->Wait();
  EXPECT_TRUE(EventuallyFree(pool_slabs_)) << Fsctl({"slabs"}).out;
}

// With a pool of any size, an engine that needs a slab when its daemon dies
// gets it from the next daemon.
TEST_F(DaemonRestartTest, SlabIsLeasedSoonAfterATakeover) {
  const int kills = FromEnvironment("FINESERVE_DAEMON_KILLS", 5);
  Process::Environment environment = EngineEnvironment();
  environment["FINESERVE_ENGINE"] = "a";
  Process engine({Program("view_engine"), "--page", "65536"}, environment);
  ASSERT_NE(engine.ReadLineWith("ready"), "") << engine.Stderr();
  const std::string a_slab = "alloc " + std::to_string(slab_mib_ * 16);
  std::vector<double> leased_ms;
  for (int i = 0; i < kills; ++i) {
    usleep(300'000);  // see above
    const abi::TableSnapshot before = Table();
    const absl::Time at = absl::Now();
    ASSERT_TRUE(KillDaemonOf(before));
    ASSERT_TRUE(Eventually([&] {
      engine.Ask(a_slab);  // at first it has no room for it
      engine.Ask("idle 1");
      const auto now = TableIfServed();
      return now && now->daemon_pid != before.daemon_pid &&
             now->counters.leases_granted > before.counters.leases_granted;
    })) << supervisor_->Stderr();
    leased_ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - at));
  }
  printf(
      "%d MiB in %u slabs: a slab was leased %.1f ms after a kill (most "
      "%.1f)\n",
      pool_mib_, pool_slabs_, Quantile(leased_ms, .5), Quantile(leased_ms, 1));
  EXPECT_TRUE(engine.alive());
}

// Does the same for an engine that starts when the daemon dies, and includes
// its start in the time. The engine waits at the socket, which is kept.
TEST_F(DaemonRestartTest, EngineThatStartsInATakeoverHasItsSlabsSoon) {
  const int kills = FromEnvironment("FINESERVE_DAEMON_KILLS", 5);
  std::vector<double> leased_ms;
  for (int i = 0; i < kills; ++i) {
    usleep(300'000);  // see above
    const auto before = static_cast<pid_t>(Table().daemon_pid);
    const absl::Time at = absl::Now();
    ASSERT_TRUE(process::SignalOne(before, SIGKILL));
    auto engine = LaunchEngine(std::to_string(slab_mib_) + "MiB");
    EXPECT_EQ(engine->ReadLineWith("kv zero"), "kv zero: yes")
        << engine->Stderr();
    leased_ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - at));
    EXPECT_NE(static_cast<pid_t>(Table().daemon_pid), before);
    EXPECT_EQ(SlabsOf(engine->pid()), 2u);
  }
  printf(
      "%d MiB in %u slabs: an engine had its slabs %.1f ms after a kill (most "
      "%.1f)\n",
      pool_mib_, pool_slabs_, Quantile(leased_ms, .5), Quantile(leased_ms, 1));
}

// The daemon dies at any moment of an engine's start, including its Hello.
TEST_F(DaemonRestartTest, EngineJoinsThePoolWhenItsDaemonDiesAtAnyMoment) {
  SCOPED_TRACE(testing::Message() << "FINESERVE_SEED=" << seed_);
  const int kills = FromEnvironment("FINESERVE_DAEMON_KILLS", 8);
  for (int i = 0; i < kills; ++i) {
    usleep(200'000);  // see above
    const auto daemon = static_cast<pid_t>(Table().daemon_pid);
    auto engine = LaunchEngine(std::to_string(slab_mib_) + "MiB");
    usleep(random_() % 40'000);
    ASSERT_TRUE(process::SignalOne(daemon, SIGKILL));
    ASSERT_EQ(engine->ReadLineWith("kv zero"), "kv zero: yes")
        << "start " << i << ": " << engine->Stderr();
    engine->EndBy(SIGKILL);
  }
  EXPECT_TRUE(EventuallyFree(pool_slabs_)) << Fsctl({"slabs"}).out;
}

TEST_F(DaemonRestartTest, ProgramThatAnotherReplacedWithoutADaemonHasEnded) {
  ReplaceAnEngineTwice();
}

// A program that looks into the folder later finds no daemon's socket.
TEST_F(DaemonRestartTest, SocketGoesWithTheSupervisorAndStaysWithADaemon) {
  const std::string socket = SocketPath();
  const auto daemon = static_cast<pid_t>(Table().daemon_pid);
  ASSERT_TRUE(process::SignalOne(daemon, SIGTERM));
  ASSERT_TRUE(Eventually([&] {
    const auto now = TableIfServed();
    return now && static_cast<pid_t>(now->daemon_pid) != daemon;
  })) << supervisor_->Stderr();
  EXPECT_EQ(access(socket.c_str(), F_OK), 0);
  EXPECT_EQ(supervisor_->EndBy(SIGTERM), 0);
  EXPECT_NE(access(socket.c_str(), F_OK), 0);
}

// Peers wait at the socket for a daemon that can take the pool over.
TEST_F(DaemonRestartTest, SocketStaysWhenATakeoverFails) {
  // A GPU may forget a pool in which no engine is left.
  const auto engine = StartEngine(std::to_string(slab_mib_) + "MiB");
  const std::string socket = SocketPath();
  const abi::TableSnapshot before = Table();
  const auto link = abi::ConnectObserver(socket, absl::Seconds(10));
  ASSERT_TRUE(link.ok()) << link.status();
  const std::string path = absl::StrCat("/proc/self/fd/", link->table.get());
  const driver::Descriptor table(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(table.valid());
  const auto want = [&](uint32_t slabs) {
    ASSERT_EQ(pwrite(table.get(), &slabs, sizeof(slabs),
                     offsetof(abi::TableHeader, wanted_slabs)),
              static_cast<ssize_t>(sizeof(slabs)));
  };
  const auto daemon = static_cast<pid_t>(before.daemon_pid);
  ASSERT_TRUE(process::SignalOne(daemon, SIGSTOP));
  want(0);  // no pool is so small
  ASSERT_TRUE(process::SignalOne(daemon, SIGKILL));
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(supervisor_->Stderr(), "contradicts itself");
  }));
  EXPECT_EQ(access(socket.c_str(), F_OK), 0);
  want(before.wanted_slabs);
  EXPECT_TRUE(Eventually([&] { return TableIfServed().has_value(); }));
}

// An engine dies while there is no daemon: the next daemon finds and reclaims
// its slabs.
TEST_F(DaemonRestartTest, EngineThatDiesWhileNoDaemonIsThereLeavesNothing) {
  auto view = StartView("a", "--page 33792");
  auto whole = StartEngine(std::to_string(slab_mib_) + "MiB");
  const auto daemon = static_cast<pid_t>(Table().daemon_pid);
  // The daemon is stopped, so that it cannot notice the deaths before it is
  // killed.
  ASSERT_TRUE(process::SignalOne(daemon, SIGSTOP));
  for (auto* engine : {view.get(), whole.get()}) {
    engine->EndBy(SIGKILL);
  }
  ASSERT_TRUE(process::SignalOne(daemon, SIGKILL));
  ASSERT_TRUE(Eventually([&] { return TableIfServed().has_value(); }));
  EXPECT_TRUE(EventuallyFree(pool_slabs_)) << Fsctl({"slabs"}).out;
}

// The pool's keeper dies. The daemon continues to serve, and says so when it
// would store something.
TEST_F(DaemonRestartTest, DaemonWhoseParentDiesServesOn) {
  auto first = StartView("a", "--page 33792");
  const auto daemon = static_cast<pid_t>(Table().daemon_pid);
  EXPECT_THAT(Fsctl({"slabs"}).out, HasSubstr("kept for the next daemon"));
  supervisor_->EndBy(SIGKILL);
  ASSERT_TRUE(Eventually([&] { return Table().keeper_lost_ns != 0; }));
  const Finished status = Fsctl({"status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_THAT(status.out, HasSubstr(absl::StrCat(
                              "WRONG the supervisor of fineserved ", daemon)));
  EXPECT_THAT(status.out, HasSubstr("(since "));
  EXPECT_THAT(Fsctl({"slabs"}).out, Not(HasSubstr("kept for the next daemon")));
  auto second = StartView("b", "--page 65536 --planes 2");
  const uint64_t moved = Table().counters.slabs_returned;
  EXPECT_TRUE(
      Eventually([&] { return Table().counters.slabs_returned > moved; }));
  EXPECT_EQ(static_cast<pid_t>(Table().daemon_pid), daemon);
  EXPECT_TRUE(first->alive() && second->alive());
  for (auto* engine : {first.get(), second.get()}) engine->Signal(SIGKILL);
  EXPECT_TRUE(EventuallyFree(pool_slabs_));
  EXPECT_TRUE(process::SignalOne(daemon, SIGKILL));
}

// The GPU executes fills that the former daemon asked for long after that
// daemon's death.
class LateFillTest : public DaemonRestartTest {
 protected:
  LateFillTest() {
    supervisor_->EndBy(SIGTERM);
    Set("EMUCUDA_LINGER_MS", kUntilEndLingering);
    Set("EMUCUDA_STREAM_DELAY_US", "100000");  // for each fill
    StartPool();
  }
};

TEST_F(LateFillTest, SlabsThatItZeroesAreNotLeasedUntilItIsGone) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "holds up the emulated device";
  const auto daemon = static_cast<pid_t>(Table().daemon_pid);
  // A daemon that has not asked for a fill yet leaves none behind.
  ASSERT_TRUE(Eventually([&] { return SlabsIn(abi::SlabState::kFree) > 0; }));
  ASSERT_TRUE(process::SignalOne(daemon, SIGKILL));
  ASSERT_TRUE(Eventually([&] { return TableIfServed().has_value(); }));
  ASSERT_NE(static_cast<pid_t>(Table().daemon_pid), daemon);
  const uint32_t late = SlabsIn(abi::SlabState::kQuarantined);
  EXPECT_GT(late, 0u);
  ASSERT_EQ(Table().engines.size(), 1u);
  EXPECT_EQ(Table().engines[0].name, "fineserved (former)");
  EXPECT_EQ(Table().engines[0].member_pids.at(0),
            static_cast<uint32_t>(daemon));
  usleep(500'000);
  EXPECT_EQ(SlabsIn(abi::SlabState::kQuarantined), late);
  EndLingering();
  EXPECT_TRUE(EventuallyFree(pool_slabs_)) << Fsctl({"slabs"}).out;
}

// Engines come and go under every daemon.
TEST_F(DaemonRestartTest, NextDaemonServesNewEnginesBesideTheOldOnes) {
  auto first = StartView("a", "--page 33792");
  ASSERT_NO_FATAL_FAILURE({
    const abi::TableSnapshot before = Table();
    ASSERT_TRUE(KillDaemonOf(before));
    ASSERT_TRUE(Eventually([&] { return TableIfServed().has_value(); }));
  });
  auto second = StartView("b", "--page 65536 --planes 2");
  ASSERT_NO_FATAL_FAILURE(Kill());
  EXPECT_TRUE(first->alive()) << first->Stderr();
  EXPECT_TRUE(second->alive()) << second->Stderr();
  const abi::TableSnapshot table = Table();
  ASSERT_EQ(table.engines.size(), 2u);
  EXPECT_NE(table.engines[0].id, table.engines[1].id);
}

// Without persistence mode, the GPU forgets all memory when the last process
// that has it open ends. What the parent keeps then names no memory.
class ForgetfulGpuTest : public DaemonRestartTest {
 protected:
  ForgetfulGpuTest() {
    supervisor_->EndBy(SIGTERM);
    Set("EMUCUDA_PERSISTENCE", "off");
    StartPool();
  }
};

TEST_F(ForgetfulGpuTest, NextDaemonBeginsWithANewPoolIfNoEngineIsLeft) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "forgets on the emulated device only";
  const abi::TableSnapshot before = Table();
  ASSERT_TRUE(KillDaemonOf(before));
  ASSERT_TRUE(Eventually([&] {
    const auto now = TableIfServed();
    return now && now->daemon_pid != before.daemon_pid;
  })) << supervisor_->Stderr();
  EXPECT_NE(Table().epoch, before.epoch);
  auto engine = StartEngine(std::to_string(slab_mib_) + "MiB");
  EXPECT_EQ(SlabsOf(engine->pid()), 2u);
  EXPECT_TRUE(absl::StrContains(supervisor_->Stderr(), "persistence mode"))
      << supervisor_->Stderr();
}

TEST_F(ForgetfulGpuTest, ProgramThatReplacedAnEngineIsNoneThatIsLeft) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "forgets on the emulated device only";
  ReplaceAnEngineTwice();
}

TEST_F(ForgetfulGpuTest, PoolLivesOnWithAnEngineThatHasTheGpuOpen) {
  auto view = StartView("a", "--page 33792");
  const abi::TableSnapshot before = Table();
  ASSERT_TRUE(KillDaemonOf(before));
  ASSERT_TRUE(Eventually([&] {
    const auto now = TableIfServed();
    return now && now->daemon_pid != before.daemon_pid;
  })) << supervisor_->Stderr();
  EXPECT_EQ(Table().epoch, before.epoch);
  EXPECT_TRUE(view->alive());
}

// Simulates a reset of the GPU beside an engine.
TEST_F(DaemonRestartTest, LostPoolWaitsForTheEndOfEnginesThatLiveInIt) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "loses memory on the emulated device";
  auto view = StartView("a", "--page 33792");
  const abi::TableSnapshot before = Table();
  std::filesystem::remove(environment().at("EMUCUDA_DIR") + "/gpu0.memory");
  ASSERT_TRUE(KillDaemonOf(before));
  const std::string cure =
      absl::StrCat("beside engine a (pid ", view->pid(), "): stop them");
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(supervisor_->Stderr(), cure);
  })) << supervisor_->Stderr();
  EXPECT_TRUE(view->alive());
  EXPECT_FALSE(TableIfServed().has_value());
  view->EndBy(SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    const auto now = TableIfServed();
    return now && now->epoch != before.epoch;
  })) << supervisor_->Stderr();
}

}  // namespace
}  // namespace fineserve::integration
