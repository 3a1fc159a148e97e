// fsctl upgrade: another fineserved takes the pool over while engines serve, or
// the former one comes back.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/site.h"
#include "tools/lab/process/from_environment.h"

namespace fineserve::integration {
namespace {

namespace fs = std::filesystem;

constexpr int kWentBack = 4;
// A release that does not serve and ends only with its parent, even if the
// parent ended before it began. It has the pool's descriptors, and with them
// the emulated GPU's memory. Another process may get the parent's pid.
constexpr char kHangs[] =
    "while [ $PPID != 1 ] && "
    "[ \"$(cut -d' ' -f4 /proc/$$/stat)\" = $PPID ]; do sleep 0.1; done";

class UpgradeTest : public Site {
 protected:
  static constexpr uint32_t kPoolSlabs = 24;

  UpgradeTest() {
    Set("EMUCUDA_MEMORY", "4GiB");
    // A separate installation, whose program can be replaced.
    fs::create_directories(folder() + "/installed/bin");
    fs::create_directory_symlink(Build() + "/lib", folder() + "/installed/lib");
    fs::copy_file(Program("fineserved"), Installed());
  }

  // Parent of bin/ and lib/.
  std::string Build() const {
    return fs::path(Program("fineserved")).parent_path().parent_path();
  }

  std::string Installed() const {
    return folder() + "/installed/bin/fineserved";
  }
  // Returns the same release in another file.
  std::string Another() const {
    const std::string path = folder() + "/installed/bin/another";
    fs::copy_file(Program("fineserved"), path,
                  fs::copy_options::overwrite_existing);
    return path;
  }
  // Returns a release that answers questions as ours does, but does `otherwise`
  // instead of serving.
  std::string Broken(const std::string& otherwise) const {
    return Script("case \"$*\" in *--version*|*--check-takeover*) exec " +
                  Program("fineserved") + " \"$@\";; esac\n" + otherwise);
  }
  std::string Script(const std::string& text) const {
    const std::string path = folder() + "/installed/bin/script";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }

  void StartPool(bool supervised = true) {
    parent_ = LaunchProgram(
        Words(Installed() + " --pool 96MiB --slab 4MiB --planes 2 --gpu " +
              Gpu() + (supervised ? " --supervise" : "")));
    AwaitDaemon(parent_.get());
  }
  void StartEngines() {
    engines_.push_back(StartView("a", "--page 33792"));
    engines_.push_back(StartView("b", "--page 65536 --planes 2"));
    engines_.push_back(
        StartView("c", "--page 18432 --planes 2 --mode guarded"));
    engines_.push_back(StartEngine("4MiB"));
    whole_ = SlabsOf(engines_.back()->pid());
    EXPECT_EQ(whole_, 2u);
  }
  std::unique_ptr<Process> StartView(const std::string& name,
                                     const std::string& format) {
    Process::Environment environment = {{"FINESERVE_ENGINE", name}};
    if (engines_of_ != Build()) {
      environment["LD_PRELOAD"] = engines_of_ + "/lib/libfineserve_shim.so";
    }
    auto engine = LaunchPreloaded(
        With({engines_of_ + "/bin/view_engine"},
             Words("--random 3600 --seed 1 --most 700 --watermark 100 " +
                   format)),
        environment);
    EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
    return engine;
  }

  // Runs fsctl upgrade and returns its exit code. What it says is in answer_.
  int RunUpgrade(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"upgrade", "--json"});
    const Finished done = Fsctl(arguments);
    outcome_ = JsonText(done.out, "/outcome");
    silent_ms_ = JsonAt(done.out, "/silent_ms");
    answer_ = done.out + done.err;
    return done.code;
  }
  // Expects that the engines still serve, and that slabs move between them.
  void ExpectServing(const abi::TableSnapshot& before) {
    const abi::TableSnapshot now = Table();
    EXPECT_EQ(now.epoch, before.epoch);
    for (const auto& engine : engines_) {
      EXPECT_TRUE(engine->alive()) << engine->ReadAll() << engine->Stderr();
    }
    EXPECT_EQ(SlabsOf(engines_.back()->pid()), whole_);
    EXPECT_TRUE(Eventually([&] {
      return Table().counters.slabs_returned > now.counters.slabs_returned + 1;
    })) << parent_->Stderr();
  }
  std::string ProgramOfDaemon() {
    return fs::read_symlink("/proc/" + std::to_string(Table().daemon_pid) +
                            "/exe");
  }
  void ExpectNothingLost() {
    for (const auto& engine : engines_) engine->Signal(SIGTERM);
    for (const auto& engine : engines_) engine->Wait();
    EXPECT_TRUE(EventuallyFree(kPoolSlabs)) << Fsctl({"slabs"}).out;
  }

  std::string engines_of_ = Build();
  std::unique_ptr<Process> parent_;
  std::vector<std::unique_ptr<Process>> engines_;
  uint32_t whole_ = 0;
  std::string outcome_;
  std::string silent_ms_;
  std::string answer_;
};

TEST_F(UpgradeTest, AnotherReleaseTakesThePoolOverWhileEnginesServe) {
  StartPool();
  StartEngines();
  const abi::TableSnapshot before = Table();
  EXPECT_EQ(RunUpgrade({"--check", "--binary", Another()}), 0) << answer_;
  EXPECT_EQ(outcome_, "checked");
  EXPECT_EQ(Table().daemon_pid, before.daemon_pid);
  for (int i = 0; i < 3; ++i) {
    const abi::TableSnapshot then = Table();
    ASSERT_EQ(RunUpgrade({"--binary", Another()}), 0)
        << answer_ << parent_->Stderr();
    EXPECT_EQ(outcome_, "upgraded") << answer_;
    EXPECT_NE(Table().daemon_pid, then.daemon_pid);
    EXPECT_EQ(Table().daemons, then.daemons + 1);
    EXPECT_EQ(ProgramOfDaemon(), Installed());
    ExpectServing(before);
  }
  EXPECT_TRUE(fs::exists(Installed() + ".former"));
  // Nothing else has been installed since.
  EXPECT_EQ(RunUpgrade({}), 0) << answer_;
  EXPECT_EQ(outcome_, "current");
  ExpectNothingLost();
}

// As a package manager does it.
TEST_F(UpgradeTest, StartsWhatIsInstalledByThen) {
  StartPool();
  StartEngines();
  const abi::TableSnapshot before = Table();
  fs::rename(Another(), Installed());
  ASSERT_EQ(RunUpgrade({}), 0) << answer_;
  EXPECT_EQ(outcome_, "upgraded") << answer_;
  EXPECT_EQ(ProgramOfDaemon(), Installed());
  ExpectServing(before);
}

TEST_F(UpgradeTest, ReleaseThatDoesNotServeGivesWayToTheFormerOne) {
  StartPool();
  StartEngines();
  const abi::TableSnapshot before = Table();
  for (const char* fault : {"exit 1", "kill -9 $$", kHangs}) {
    ASSERT_EQ(RunUpgrade({"--timeout", "2", "--binary", Broken(fault)}),
              kWentBack)
        << fault << ": " << answer_;
    EXPECT_EQ(outcome_, "went back") << answer_;
    EXPECT_EQ(ProgramOfDaemon(), Installed());
    EXPECT_TRUE(fs::exists(Installed() + ".failed"));
    ExpectServing(before);
  }
  // From now on, the parent also starts the former program.
  const auto daemon = static_cast<pid_t>(Table().daemon_pid);
  EXPECT_TRUE(process::SignalOne(daemon, SIGKILL));
  ASSERT_TRUE(Eventually(
      [&] { return static_cast<pid_t>(Table().daemon_pid) != daemon; }));
  ExpectServing(before);
  ExpectNothingLost();
}

// The installed file is gone, but the program that ran is kept.
TEST_F(UpgradeTest, FormerReleaseComesBackThoughItsFileIsGone) {
  StartPool();
  StartEngines();
  const abi::TableSnapshot before = Table();
  fs::rename(Broken("exit 1"), Installed());
  ASSERT_EQ(RunUpgrade({"--timeout", "10"}), kWentBack) << answer_;
  ExpectServing(before);
}

// Even if the test above fails, no process that has the pool is left behind.
TEST_F(UpgradeTest, ReleaseThatHangsEndsWithItsParent) {
  StartPool();
  const auto daemon = static_cast<pid_t>(Table().daemon_pid);
  fs::rename(Broken(kHangs), Installed());
  ASSERT_TRUE(process::SignalOne(daemon, SIGTERM));
  pid_t hanging = 0;
  ASSERT_TRUE(Eventually([&] {
    std::ifstream children("/proc/" + std::to_string(parent_->pid()) +
                           "/task/" + std::to_string(parent_->pid()) +
                           "/children");
    return children >> hanging && hanging != daemon;
  }));
  parent_->EndBy(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return kill(hanging, 0) != 0; }));
}

TEST_F(UpgradeTest, ReleaseThatCannotTakeThePoolOverIsNotStarted) {
  StartPool();
  const abi::TableSnapshot before = Table();
  const auto expect_refused = [&](const std::string& binary,
                                  const std::string& why) {
    EXPECT_EQ(RunUpgrade({"--binary", binary}), 1) << binary;
    EXPECT_EQ(outcome_, "refused");
    EXPECT_NE(answer_.find(why), std::string::npos) << answer_;
  };
  expect_refused(folder() + "/none", "No such file");
  expect_refused(folder(), "is no file");
  expect_refused("/bin/false", "does not run here");
  expect_refused("/bin/echo", "is no fineserved");
  expect_refused(Script("kill -9 $$"), "died of signal 9");
  // One version older, one newer.
  for (const char* version : {"10", "12"}) {
    expect_refused(Script("echo fineserved 9.9, ABI " + std::string(version)),
                   "speak ABI 11");
  }
  expect_refused(
      Script("case \"$*\" in *--version) exec " + Program("fineserved") +
             " --version;; esac\necho no pool for me; exit 1"),
      "no pool for me");
  EXPECT_EQ(Table().daemon_pid, before.daemon_pid);
  // A release that does not know the question is accepted if its version is
  // right.
  const std::string silent = Script(
      "case \"$*\" in *--version) exec " + Program("fineserved") +
      " --version;; esac\necho 'no such flag: --check-takeover'; exit 2");
  EXPECT_EQ(RunUpgrade({"--check", "--binary", silent}), 0) << answer_;
}

TEST_F(UpgradeTest, RootTakesNoProgramThatOthersCanChange) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  StartPool();
  const auto daemon = Table().daemon_pid;
  const std::string another = Another();
  EXPECT_EQ(RunUpgrade({"--check", "--binary", another}), 0) << answer_;
  chmod(Installed().c_str(), 0777);
  for (const bool check : {true, false}) {
    std::vector<std::string> arguments = {"--binary", another};
    if (check) arguments.push_back("--check");
    EXPECT_EQ(RunUpgrade(arguments), 1) << answer_;
    EXPECT_EQ(outcome_, "refused");
    EXPECT_NE(answer_.find("users other than root"), std::string::npos)
        << answer_;
  }
  EXPECT_EQ(Table().daemon_pid, daemon);
}

// FINESERVE_FORMER_BUILD is the build folder of an earlier commit. Its parent
// and its engines (shim included) run while the pool passes from its daemon to
// this commit's daemon and back, FINESERVE_UPGRADES times (3).
TEST_F(UpgradeTest, FormerReleaseIsUpgradedAndComesBackWhileItsEnginesServe) {
  const char* former = getenv("FINESERVE_FORMER_BUILD");
  if (former == nullptr) {
    GTEST_SKIP() << "set FINESERVE_FORMER_BUILD to the build folder of an "
                    "earlier commit";
  }
  const int upgrades = process::FromEnvironment("FINESERVE_UPGRADES", 3);
  const std::string ours = Another();
  const std::string theirs = std::string(former) + "/bin/fineserved";
  fs::copy_file(theirs, Installed(), fs::copy_options::overwrite_existing);
  engines_of_ = former;
  StartPool();
  StartEngines();
  const abi::TableSnapshot before = Table();
  for (int i = 0; i < upgrades; ++i) {
    for (const std::string& next : {ours, theirs}) {
      ASSERT_EQ(RunUpgrade({"--binary", next}), 0) << answer_;
      EXPECT_EQ(outcome_, "upgraded") << answer_;
      printf("%s: silent for %s ms\n", next == ours ? "upgraded" : "back",
             silent_ms_.c_str());
      ExpectServing(before);
    }
  }
  ExpectNothingLost();
}

// fsctl upgrade first checks the files that the next daemon would read.
TEST_F(UpgradeTest, ConfigurationThatTheNextOneRefusesIsFoundBefore) {
  const std::string config = folder() + "/fineserve.toml";
  std::ofstream(config) << "[pool]\nsize = \"96MiB\"\n";
  parent_ = LaunchProgram({Installed(), "--gpu", Gpu(), "--slab", "4MiB",
                           "--config", config, "--supervise"});
  AwaitDaemon(parent_.get());
  std::ofstream(config) << "[pool]\nsice = \"96MiB\"\n";
  EXPECT_EQ(RunUpgrade({"--check", "--binary", Another()}), 1);
  EXPECT_NE(answer_.find("sice"), std::string::npos) << answer_;
}

TEST_F(UpgradeTest, PoolThatIsNotKeptIsNotHandedOver) {
  StartPool(/*supervised=*/false);
  const abi::TableSnapshot before = Table();
  EXPECT_EQ(RunUpgrade({"--binary", Another()}), 1);
  EXPECT_NE(answer_.find("--supervise"), std::string::npos) << answer_;
  EXPECT_EQ(Table().daemon_pid, before.daemon_pid);
}

TEST_F(UpgradeTest, WithoutADaemonItSaysSo) {
  EXPECT_EQ(Fsctl({"upgrade"}).code, 3);
  EXPECT_EQ(Fsctl({"upgrade", "--timeout", "0"}).code, 2);
  EXPECT_EQ(Fsctl({"upgrade", "--nonsense"}).code, 2);
}

}  // namespace
}  // namespace fineserve::integration
