// The stock unit file under a real systemd: kill -9 of the daemon, and fsctl
// upgrade, while engines serve. The test starts a user manager in a separate
// mount namespace and separate control groups. FINESERVE_DAEMON_KILLS sets
// another number of kills.

#include <gtest/gtest.h>
#include <signal.h>
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

// Starts the manager, prints "ready" or why it cannot, and then runs the lines
// of its standard input. systemd refuses to run on a machine that it has not
// booted, hence /run/systemd/system. It moves the processes of its control
// group, hence a separate group in each hierarchy.
constexpr char kManager[] = R"(
groups=
for folder in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
  [ -e $folder/cgroup.procs ] || continue
  group=$folder/fineserve-test-$$
  mkdir $group && echo $$ > $group/cgroup.procs || { echo "no control group"; exit; }
  groups="$group $groups"
done
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/user ||
  { echo "no mount"; exit; }
export XDG_RUNTIME_DIR=/run/user XDG_CONFIG_HOME=$FOLDER/config
/lib/systemd/systemd --user --log-target=console >&2 &
manager=$!
for i in $(seq 200); do
  systemctl --user is-system-running > /dev/null 2>&1 && break
  kill -0 $manager 2> /dev/null || { echo "systemd ended"; exit; }
  sleep 0.05
done
echo ready
while read -r line; do
  eval "$line" > $FOLDER/output 2>&1
  echo "done $?"
done
systemctl --user exit
wait $manager
for group in $groups; do
  echo $$ > ${group%/*}/cgroup.procs
  find $group -depth -type d -exec rmdir {} + 2> /dev/null
done
)";

class SystemdTest : public Site {
 protected:
  void SetUp() override {
    if (geteuid() != 0 || access("/lib/systemd/systemd", X_OK) != 0) {
      GTEST_SKIP() << "needs root and systemd";
    }
    Set("EMUCUDA_MEMORY", "4GiB");
    Install();
    Process::Environment environment = this->environment();
    environment["FOLDER"] = folder();
    manager_ = std::make_unique<Process>(
        std::vector<std::string>{"unshare", "-m", "--", "sh", "-c", kManager},
        environment);
    const std::string said = manager_->ReadLine();
    if (said != "ready") {
      GTEST_SKIP() << "no systemd can run here: " << said << manager_->Stderr();
    }
    ASSERT_EQ(Do("systemctl --user start " + Unit()), 0) << Output();
  }
  void TearDown() override {
    if (manager_ == nullptr) return;
    engines_.clear();
    manager_->CloseStdin();
    manager_->Wait();
  }

  // Installs the stock unit file, and a drop-in as an operator writes it.
  void Install() {
    fs::create_directories(folder() + "/installed/bin");
    const fs::path build =
        fs::path(Program("fineserved")).parent_path().parent_path();
    fs::create_directory_symlink(build / "lib", folder() + "/installed/lib");
    fs::copy_file(Program("fineserved"), Installed());
    const std::string units = folder() + "/config/systemd/user";
    fs::create_directories(units + "/" + Unit() + ".d");
    fs::copy_file(build / "daemon/fineserved/start/fineserved@.service",
                  units + "/fineserved@.service");
    std::ofstream drop_in(units + "/" + Unit() + ".d/pool.conf");
    // A user's manager knows no other user and may make no mount namespaces,
    // and the test's folders are in /tmp.
    drop_in << "[Service]\nUser=\nGroup=\nSupplementaryGroups=\n";
    for (const char* name :
         {"PrivateTmp", "ProtectSystem", "ProtectHome", "PrivateMounts",
          "ProtectControlGroups", "ProtectKernelTunables",
          "ProtectKernelModules", "ProtectKernelLogs", "ProtectHostname"}) {
      drop_in << name << "=no\n";
    }
    drop_in << "ExecStart=\nExecStart=" << Installed()
            << " --gpu %i --pool 96MiB --slab 4MiB --planes 2\n";
    for (const auto& [name, value] : environment()) {
      drop_in << "Environment=" << name << "=" << value << "\n";
    }
    // The unit's filter of system calls does not let the leak check trace a
    // process at its end.
    drop_in << "Environment=ASAN_OPTIONS=detect_leaks=0\n";
  }
  static std::string Unit() { return "fineserved@emulated.service"; }
  std::string Installed() const {
    return folder() + "/installed/bin/fineserved";
  }

  // Runs a line of shell where the manager runs, and returns its exit code.
  int Do(const std::string& line) {
    const std::string done = manager_->Ask(line);
    return done.rfind("done ", 0) == 0 ? std::stoi(done.substr(5)) : -1;
  }
  std::string Output() const {
    std::ifstream file(folder() + "/output");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void StartEngines() {
    for (const char* page : {"33792", "65536"}) {
      engines_.push_back(StartRandomView(
          page, Words(std::string("--seed 1 --most 700 --watermark 100 "
                                  "--planes 2 --page ") +
                      page)));
    }
    engines_.push_back(StartEngine("4MiB"));
  }
  // Expects that another daemon has taken over the same pool, and that slabs
  // move in it.
  void ExpectTakenOver(const abi::TableSnapshot& before) {
    ASSERT_TRUE(Eventually([&] {
      const auto now = TableIfServed();
      return now && now->daemon_pid != before.daemon_pid &&
             now->daemons > before.daemons;
    })) << manager_->Stderr();
    const abi::TableSnapshot now = Table();
    EXPECT_EQ(now.epoch, before.epoch) << manager_->Stderr();
    EXPECT_TRUE(Eventually([&] {
      return Table().counters.slabs_returned > now.counters.slabs_returned + 1;
    }));
    for (const auto& engine : engines_) {
      EXPECT_TRUE(engine->alive()) << engine->Stderr();
    }
    EXPECT_EQ(SlabsOf(engines_.back()->pid()), 2u);
  }

  std::unique_ptr<Process> manager_;
  std::vector<std::unique_ptr<Process>> engines_;
};

TEST_F(SystemdTest, UnitThatIsKilledTakesItsPoolOverAgain) {
  StartEngines();
  const int kills = process::FromEnvironment("FINESERVE_DAEMON_KILLS", 3);
  for (int i = 0; i < kills; ++i) {
    const abi::TableSnapshot before = Table();
    EXPECT_TRUE(before.is_kept());
    ASSERT_TRUE(KillDaemonOf(before));
    ASSERT_NO_FATAL_FAILURE(ExpectTakenOver(before));
  }
  const abi::TableSnapshot before = Table();
  ASSERT_EQ(Do("systemctl --user restart " + Unit()), 0) << Output();
  ASSERT_NO_FATAL_FAILURE(ExpectTakenOver(before));
}

TEST_F(SystemdTest, UnitIsUpgradedAndGoesBack) {
  StartEngines();
  const std::string another = folder() + "/installed/bin/another";
  fs::copy_file(Program("fineserved"), another);
  abi::TableSnapshot before = Table();
  const std::string upgrade = Program("fsctl") + " upgrade --json --timeout ";
  ASSERT_EQ(Do(upgrade + "30 --binary " + another), 0) << Output();
  EXPECT_EQ(JsonText(Output(), "/outcome"), "upgraded") << Output();
  ASSERT_NO_FATAL_FAILURE(ExpectTakenOver(before));
  std::ofstream(another) << "#!/bin/sh\ncase \"$*\" in "
                            "*--version*|*--check-takeover*) exec "
                         << Program("fineserved") << " \"$@\";; esac\nexit 1\n";
  chmod(another.c_str(), 0755);
  before = Table();
  ASSERT_EQ(Do(upgrade + "3 --binary " + another), 4) << Output();
  EXPECT_EQ(JsonText(Output(), "/outcome"), "went back") << Output();
  ASSERT_NO_FATAL_FAILURE(ExpectTakenOver(before));
}

}  // namespace
}  // namespace fineserve::integration
