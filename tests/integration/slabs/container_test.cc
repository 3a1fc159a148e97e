// Engines and daemons in separate namespaces, as containers have them. Each of
// them works, or says in one line why it does not. DeathTest tests a daemon
// that sees no engine.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ContainerTest : public Site {
 protected:
  // Returns why the kernel gives no such namespaces; empty if it does.
  std::string WhyNot(const std::vector<std::string>& container) const {
    const Finished tried =
        RunToEnd(With(container, {Program("fsctl"), "--version"}), {});
    return tried.code == 0 ? "" : "no such container here: " + tried.err;
  }

  // Starts stock_engine with two layers of 8 MiB of KV, in a container.
  std::unique_ptr<Process> Launch(const std::vector<std::string>& container,
                                  const Process::Environment& more = {}) {
    Process::Environment environment = more;
    environment["FINESERVE_KV_SIZES"] = "8MiB";
    // Only the engine is preloaded, as in a pod.
    environment["LD_PRELOAD"] = "";
    return LaunchPreloaded(
        With(container,
             With({"env", "LD_PRELOAD=" + EngineEnvironment().at("LD_PRELOAD"),
                   Program("stock_engine")},
                  Words("--layers 2 --hold --kv 8MiB"))),
        environment);
  }

  static const std::vector<std::string> kPidNamespace;
};
const std::vector<std::string> ContainerTest::kPidNamespace = {
    "/usr/bin/unshare", "--pid", "--fork", "--kill-child"};

// A pod without hostPID.
TEST_F(ContainerTest, EngineInAPidNamespaceOfItsOwnRunsWithoutThePool) {
  const std::string why = WhyNot(kPidNamespace);
  if (!why.empty()) GTEST_SKIP() << why;
  const auto daemon = StartDaemon();
  const auto engine = Launch(kPidNamespace);
  ASSERT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Stderr(),
              HasSubstr("this process is in another pid namespace; share the "
                        "daemon's (for a container: --pid=host)"));
  EXPECT_EQ(SlabsIn(abi::SlabState::kFree), kSlabs);
  EXPECT_GT(Table().counters.connections_refused, 0u);
}

// In two pods without hostPID, the daemon gets pid 0 for the engine.
TEST_F(ContainerTest, EngineWithoutAPidForItsDaemonRunsWithoutThePool) {
  const std::string why = WhyNot(kPidNamespace);
  if (!why.empty()) GTEST_SKIP() << why;
  const auto daemon = LaunchProgram(
      With(kPidNamespace, Words(Program("fineserved") +
                                " --pool 64MiB --slab 4MiB --gpu " + Gpu())));
  AwaitDaemon(daemon.get());
  const auto engine = Launch(kPidNamespace);
  ASSERT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  EXPECT_THAT(engine->Stderr(), HasSubstr("in another pid namespace"));
  EXPECT_THAT(daemon->Stderr(), HasSubstr("refused pid 0"));
}

// It is for a view or not at all.
TEST_F(ContainerTest, EngineForAViewInAPidNamespaceOfItsOwnEndsWithTheReason) {
  const std::string why = WhyNot(kPidNamespace);
  if (!why.empty()) GTEST_SKIP() << why;
  const auto daemon = StartDaemon();
  const auto engine =
      LaunchPreloaded(With(kPidNamespace, {Program("view_engine")}),
                      {{"FINESERVE_VIEW", "required"}});
  constexpr int kNoView = 5;
  EXPECT_EQ(engine->Wait(), kNoView) << engine->Stderr();
  EXPECT_THAT(engine->Stderr(), HasSubstr("share the daemon's"));
}

// A rootless container of the daemon's user.
TEST_F(ContainerTest, EngineInAUserNamespaceOfTheSameUserIsServed) {
  const std::vector<std::string> container = {
      "/usr/bin/unshare", "--user", "--map-root-user",
      "--mount",          "--ipc",  "--uts"};
  const std::string why = WhyNot(container);
  if (!why.empty()) GTEST_SKIP() << why;
  const auto daemon = StartDaemon();
  const auto engine = Launch(container);
  ASSERT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  EXPECT_EQ(SlabsOf(engine->pid()), 4u) << engine->Stderr();
  EXPECT_EQ(engine->EndBy(SIGKILL), -SIGKILL);
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

// The container's root is another user of this machine, who may not enter the
// daemon's folder and does not even see who owns it.
TEST_F(ContainerTest, EngineInAUserNamespaceOfAnotherUserRunsWithoutThePool) {
  const std::vector<std::string> container = {
      "/usr/bin/setpriv", "--reuid", "4711",           "--clear-groups",
      "/usr/bin/unshare", "--user",  "--map-root-user"};
  const std::string why = WhyNot(container);
  if (!why.empty()) GTEST_SKIP() << why;
  const auto daemon = StartDaemon();
  ASSERT_EQ(chmod(folder().c_str(), 0711), 0);
  ASSERT_EQ(mkdir((folder() + "/other").c_str(), 0700), 0);
  ASSERT_EQ(chown((folder() + "/other").c_str(), 4711, 4711), 0);
  const auto engine =
      Launch(container, {{"EMUCUDA_DIR", folder() + "/other/device"}});
  ASSERT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Stderr(),
              HasSubstr("which this user namespace does not map"));
  EXPECT_EQ(SlabsIn(abi::SlabState::kFree), kSlabs);
}

// No file there holds the memory of engines and pools, or the copies of evicted
// memory.
TEST_F(ContainerTest, SharedMemoryOf64MiBIsEnough) {
  const std::vector<std::string> container = {
      "/usr/bin/unshare", "--mount", "/bin/sh", "-c",
      "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec \"$0\" \"$@\""};
  const std::string why = WhyNot(container);
  if (!why.empty()) GTEST_SKIP() << why;
  Set("EMUCUDA_DIR", folder() + "/device");
  const auto daemon = LaunchProgram(
      With(container, Words(Program("fineserved") +
                            " --pool 256MiB --slab 4MiB --gpu " + Gpu())));
  AwaitDaemon(daemon.get());
  const auto engine = LaunchPreloaded(
      With(container, With({Program("stock_engine")},
                           Words("--layers 2 --hold --kv 64MiB"))),
      {{"FINESERVE_KV_SIZES", "64MiB"}});
  ASSERT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_EQ(SlabsOf(engine->pid()), 32u);
  EXPECT_THAT(daemon->Stderr(), Not(HasSubstr("error")));
}

}  // namespace
}  // namespace fineserve::integration
