// `fsctl run` where no fineserved runs, and pools of size "auto".

#include <gmock/gmock.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "daemon/contract/finding/daemon_sockets.h"
#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// A small emulated device that the loader finds.
class AutoPoolTest : public Site {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "a device of a chosen size";
    Set("EMUCUDA_MEMORY", "256MiB");
    Set("LD_LIBRARY_PATH", EngineEnvironment().at("LD_LIBRARY_PATH"));
  }
};

// The daemon that fsctl starts outlives fsctl, and would outlive the test.
class RunDaemonTest : public AutoPoolTest {
 protected:
  void TearDown() override {
    if (!Serves()) return;
    const pid_t parent = Parent();
    ASSERT_GT(parent, 1) << "it has ended without an order";
    EXPECT_TRUE(process::SignalOne(parent, SIGTERM));
    EXPECT_TRUE(Eventually([&] { return kill(parent, 0) != 0; }));
    EXPECT_FALSE(Serves()) << "its socket is still there";
  }
  // Returns the daemon's parent, which leads their session; 0 if no daemon
  // answers.
  pid_t Parent() {
    const auto daemon = static_cast<pid_t>(Table().daemon_pid);
    return daemon > 0 ? getsid(daemon) : 0;
  }
  bool Serves() const {
    return !finding::ListSockets(folder() + "/run").empty();
  }
  std::string Log() const {
    std::ifstream log(folder() + "/run/fineserved.log");
    return {std::istreambuf_iterator<char>(log), {}};
  }
  std::vector<std::string> Run(const std::vector<std::string>& flags = {}) {
    return With(
        With({"run", "--kv-size", "32MiB"}, flags),
        {"--", Program("stock_engine"), "--kv", "32MiB", "--layers", "1"});
  }
  std::unique_ptr<Process> Begin() {
    return LaunchProgram(With({"fsctl"}, Run()));
  }
};

TEST_F(RunDaemonTest, MissingDaemonIsStartedAndServesTheNextEnginesToo) {
  const Finished first = Fsctl(Run());
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("ready"));
  EXPECT_THAT(first.err, HasSubstr("no fineserved is running; starting one"));
  const abi::TableSnapshot table = Table();
  EXPECT_THAT(first.err, HasSubstr("fineserved " + std::to_string(Parent()) +
                                   " serves GPU-"));
  EXPECT_NE(table.flags & abi::kTableEmulatedDevice, 0u);
  EXPECT_EQ(table.counters.leases_granted, 1u);
  EXPECT_NE(Parent(), getsid(0));
  EXPECT_THAT(Log(), HasSubstr("free less a reserve of"));
  const Finished second = Fsctl(Run());
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("starting one")));
  EXPECT_EQ(Table().counters.leases_granted, 2u);
}

// The daemon is supervised, so what its engines hold outlives it.
TEST_F(RunDaemonTest, DaemonThatIsKilledIsFollowedByOneWithItsPool) {
  Set("EMUCUDA_PERSISTENCE", "on");  // no engine is left in it
  EXPECT_EQ(Fsctl(Run()).code, 0);
  const abi::TableSnapshot before = Table();
  ASSERT_TRUE(KillDaemonOf(before));
  EXPECT_TRUE(
      Eventually([&] { return Table().daemon_pid != before.daemon_pid; }));
  EXPECT_EQ(Table().epoch, before.epoch);
}

TEST_F(RunDaemonTest, RunsAtTheSameMomentShareOneDaemon) {
  constexpr int kRuns = 4;
  std::vector<std::unique_ptr<Process>> runs;
  for (int i = 0; i < kRuns; ++i) runs.push_back(Begin());
  std::string said;
  for (const auto& run : runs) {
    EXPECT_EQ(run->Wait(), 0) << run->Stderr();
    said += run->Stderr();
  }
  EXPECT_EQ(Count(said, "starting one"), 1u) << said;
  EXPECT_EQ(Count(said, "without a pool"), 0u) << said;
  EXPECT_EQ(Count(Log(), "serving "), 1u) << Log();
  EXPECT_EQ(Table().counters.connections_refused, 0u);
}

TEST_F(RunDaemonTest, NoDaemonIsStartedAgainstTheUsersWill) {
  const Finished run = Fsctl(Run({"--no-daemon"}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("running without a pool"));
  EXPECT_FALSE(Serves());
}

TEST_F(RunDaemonTest, DaemonThatCannotServeIsOneLineAndTheEngineStillRuns) {
  Set("EMUCUDA_MEMORY", "32MiB");
  const std::vector<std::string> command = {"run", "--", "/bin/true"};
  const Finished run = Fsctl(command);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("nothing is left for a pool"));
  EXPECT_THAT(run.err, HasSubstr("running without a pool"));
  const Finished view = Fsctl({"run", "--view", "--", "/bin/true"});
  EXPECT_EQ(view.code, 3) << view.err;
  EXPECT_THAT(view.err, HasSubstr("nothing is left for a pool"));
  EXPECT_FALSE(Serves());
}

TEST_F(RunDaemonTest, EngineWithAPluginHasAViewUntilWholeSlabsAreAskedFor) {
  const std::string vllm = folder() + "/vllm";
  std::ofstream(vllm) << "#!/bin/sh\necho \"view: $FINESERVE_VIEW\"\n";
  ASSERT_EQ(chmod(vllm.c_str(), 0700), 0);
  const Finished alone = Fsctl({"run", "--no-daemon", "--", vllm});
  EXPECT_EQ(alone.code, 3) << alone.out;
  EXPECT_THAT(alone.err,
              HasSubstr("with --no-view the engine runs without a pool"));
  EXPECT_EQ(Fsctl({"run", "--no-daemon", "--no-view", "--", vllm}).out,
            "view: 0\n");
  EXPECT_EQ(Fsctl({"run", "--", vllm}).out, "view: required\n");
  EXPECT_EQ(Fsctl({"run", "--view=1", "--", vllm}).out, "view: 1\n");
  EXPECT_EQ(Fsctl({"run", "--kv-size", "8MiB", "--", vllm}).out, "view: \n");
  const std::string sglang = folder() + "/sglang";
  ASSERT_EQ(symlink(vllm.c_str(), sglang.c_str()), 0);
  EXPECT_EQ(Fsctl({"run", "--", sglang, "serve"}).out, "view: required\n");
  const std::string other = folder() + "/engine";
  ASSERT_EQ(rename(vllm.c_str(), other.c_str()), 0);
  EXPECT_EQ(Fsctl({"run", "--", other}).out, "view: \n");
  EXPECT_EQ(Fsctl({"run", "--view", "--no-view", "--", other}).code, 2);
}

struct Choice {
  std::vector<std::string> flags;
  int code;
  const char* says;
};

TEST_F(AutoPoolTest, AutomaticPoolLeavesItsReserveAndSaysSo) {
  for (const Choice& c :
       {Choice{{}, 0, "5 slabs of 32 MiB"},
        {{"--reserve", "20%"}, 0, "6 slabs of 32 MiB"},
        {{"--reserve", "180MiB", "--slab", "4MiB"}, 0, "18 slabs of 4 MiB"},
        {{}, 0, "may grow to 7 slabs"},
        {{"--headroom", "50%", "--reserve", "80%"}, 0, "may grow to 4 slabs"},
        {{"--max-pool", "64MiB"}, 0, "at most 64 MiB"},
        {{"--reserve", "1GiB"}, 1, "give a smaller --reserve"},
        {{"--pool", "64MiB", "--headroom", "1GiB"}, 2, "give --pool auto"},
        {{"--headroom", "0MiB"}, 2, "a headroom of nothing"},
        {{"--pool", "64MiB", "--reserve", "1GiB"}, 2, "give --pool auto"}}) {
    std::vector<std::string> command = {Program("fineserved"),
                                        "--gpu",
                                        "emulated",
                                        "--pool",
                                        "auto",
                                        "--dry-run"};
    command.insert(command.end(), c.flags.begin(), c.flags.end());
    const Finished plan = RunToEnd(command, environment());
    EXPECT_EQ(plan.code, c.code) << plan.err;
    EXPECT_THAT(plan.out + plan.err, HasSubstr(c.says));
  }
}

TEST_F(AutoPoolTest, AutomaticPoolKeepsItsSizeWhenTheFileIsReadAgain) {
  const std::string file = folder() + "/fineserve.toml";
  std::ofstream(file) << "gpu = \"emulated\"\n[pool]\nsize = \"auto\"\n"
                      << "reserve = \"50%\"\nslab = \"4MiB\"\n";
  Process daemon({Program("fineserved"), "--config", file}, environment());
  const auto says = [&](const std::string& what) {
    return Eventually(
        [&] { return daemon.Stderr().find(what) != std::string::npos; });
  };
  ASSERT_TRUE(says(" serving ")) << daemon.Stderr();
  EXPECT_THAT(daemon.Stderr(), HasSubstr("free less a reserve of"));
  const auto present = [&] {
    return Table().slabs.size() - SlabsIn(abi::SlabState::kAbsent);
  };
  const size_t slabs = present();
  EXPECT_GE(slabs, 24u);
  EXPECT_LE(slabs, 32u);
  daemon.Signal(SIGHUP);
  ASSERT_TRUE(says("configuration read again"));
  EXPECT_THAT(daemon.Stderr(), Not(HasSubstr("resiz")));
  EXPECT_EQ(present(), slabs);
}

}  // namespace
}  // namespace fineserve::integration
