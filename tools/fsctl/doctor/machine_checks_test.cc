#include "tools/fsctl/doctor/machine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using Severity = Finding::Severity;

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    char folder[] = "/tmp/fsctl-doctor-test-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~FolderTest() override { rmdir(folder_.c_str()); }
  std::string folder_;
};

TEST_F(FolderTest, PrivateFolderIsOk) {
  EXPECT_EQ(CheckRuntimeFolder(folder_).severity, Severity::kOk);
}

TEST_F(FolderTest, FolderOpenToOthersFailsWithTheCommandThatRepairsIt) {
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  const Finding check = CheckRuntimeFolder(folder_);
  EXPECT_EQ(check.severity, Severity::kWrong);
  EXPECT_EQ(check.cure, "chmod 700 " + folder_);
}

TEST_F(FolderTest, FolderThatOnlyRootMayEnterFails) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  ASSERT_EQ(seteuid(65534), 0);
  const Finding check = CheckRuntimeFolder(folder_);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(check.severity, Severity::kWrong);
  EXPECT_THAT(check.what, HasSubstr("this user may not enter it"));
}

TEST_F(FolderTest, LinkToAFolderIsNotTheFolder) {
  const std::string link = folder_ + "-link";
  ASSERT_EQ(symlink(folder_.c_str(), link.c_str()), 0);
  EXPECT_EQ(CheckRuntimeFolder(link).severity, Severity::kWrong);
  unlink(link.c_str());
}

TEST_F(FolderTest, MissingFolderIsOnlyAWarning) {
  EXPECT_EQ(CheckRuntimeFolder(folder_ + "/none").severity, Severity::kNote);
}

TEST_F(FolderTest, FileThatIsNoLibraryFailsAsShim) {
  const std::string file = folder_ + "/libfineserve_shim.so";
  std::ofstream(file) << "no library";
  setenv("FINESERVE_SHIM", file.c_str(), 1);
  const Finding check = CheckShim();
  EXPECT_EQ(check.severity, Severity::kWrong);
  EXPECT_THAT(check.what, HasSubstr("cannot be preloaded"));
  unlink(file.c_str());
  EXPECT_THAT(CheckShim().what, HasSubstr("not found; looked for " + file));
  unsetenv("FINESERVE_SHIM");
}

TEST(DriverCheckTest, OldDriverFails) {
  const auto checks = CheckDriver(
      "libcuda.so.1", ProbedDriver{11080, {{"Old GPU", true, true}}});
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].severity, Severity::kWrong);
  EXPECT_THAT(checks[0].what, HasSubstr("CUDA 11.8"));
  EXPECT_THAT(checks[0].cure, HasSubstr("12.0"));
}

TEST(DriverCheckTest, DeviceWithoutExportFailsNamingIt) {
  const auto checks =
      CheckDriver("libcuda.so.1",
                  ProbedDriver{13000, {{"A", true, true}, {"B", true, false}}});
  ASSERT_EQ(checks.size(), 3u);
  EXPECT_EQ(checks[0].severity, Severity::kOk);
  EXPECT_EQ(checks[1].severity, Severity::kOk);
  EXPECT_EQ(checks[2].severity, Severity::kWrong);
  EXPECT_THAT(checks[2].what, HasSubstr("B: no export as POSIX"));
}

TEST(DriverCheckTest, NoDeviceFails) {
  EXPECT_EQ(CheckDriver("x", ProbedDriver{13000, {}})[0].severity,
            Severity::kWrong);
}

TEST(MigTest, OffIsOkAndUnknownIsNotChecked) {
  const Finding off = CheckMig(std::vector<GpuMode>{{"GPU-a"}, {"GPU-b"}});
  EXPECT_EQ(off.severity, Severity::kOk);
  EXPECT_EQ(off.what, "off on 2 GPU(s)");
  const Finding unknown = CheckMig(absl::UnavailableError("too old"));
  EXPECT_EQ(unknown.severity, Severity::kSkipped);
  EXPECT_EQ(unknown.what, "not checked: too old");
}

TEST(MigTest, GpusThatAreOrWillBeCutAreNamed) {
  const Finding on = CheckMig(std::vector<GpuMode>{{"GPU-a"},
                                                   {"GPU-b", true, true},
                                                   {"GPU-c", false, true},
                                                   {"GPU-d", true, false}});
  EXPECT_EQ(on.severity, Severity::kNote);
  EXPECT_EQ(on.what,
            "on for GPU-b, GPU-c (after its next reset), GPU-d (until its next "
            "reset): MIG instances are not supported");
}

TEST(ModesTest, GpusThatForgetOrTakeOneProcessAreNamed) {
  GpuMode forgets{"GPU-a"}, alone{"GPU-b"};
  forgets.persistent = false;
  alone.compute = 3;
  const std::vector<GpuMode> gpus = {forgets, alone};
  const Finding persistence = CheckPersistence(gpus);
  EXPECT_EQ(persistence.severity, Severity::kNote);
  EXPECT_THAT(persistence.what, HasSubstr("off for GPU-a: "));
  const Finding compute = CheckComputeMode(gpus);
  EXPECT_EQ(compute.severity, Severity::kWrong);
  EXPECT_THAT(compute.what, HasSubstr("on GPU-b: "));
  EXPECT_EQ(CheckPersistence(std::vector<GpuMode>{alone}).severity,
            Severity::kOk);
  EXPECT_EQ(CheckComputeMode(absl::UnavailableError("too old")).severity,
            Severity::kSkipped);
}

// Returns a link to a daemon that this process plays, which claims to have this
// pid.
abi::ObserverLink LinkTo(uint32_t daemon_pid) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  abi::ObserverLink link;
  link.socket.Reset(ends[0]);
  close(ends[1]);
  link.welcome.daemon_pid = daemon_pid;
  return link;
}

TEST(DaemonChecksTest, DaemonOfThisPidNamespaceHasOnePid) {
  const auto pid = static_cast<uint32_t>(getpid());
  EXPECT_EQ(CheckPidNamespace(LinkTo(pid)).severity, Severity::kOk);
  const Finding other = CheckPidNamespace(LinkTo(pid + 1));
  EXPECT_EQ(other.severity, Severity::kWrong);
  EXPECT_THAT(other.what, HasSubstr("in its own pid namespace, but"));
}

TEST(DaemonChecksTest, KernelThatDoesNotNameTheDaemonProvesNothing) {
  abi::ObserverLink link = LinkTo(1);
  link.socket.Reset();
  const Finding check = CheckPidNamespace(link);
  EXPECT_EQ(check.severity, Severity::kSkipped);
  EXPECT_EQ(check.what, "not checked: SO_PEERCRED: Bad file descriptor");
}

TEST(DaemonChecksTest, OnlySocketWithoutAListenerIsADeadDaemons) {
  const Finding dead = CheckDaemonTrouble(absl::UnavailableError("refused"));
  EXPECT_EQ(dead.severity, Severity::kWrong);
  EXPECT_THAT(dead.cure, HasSubstr("start fineserved again"));
  const Finding hung_up = CheckDaemonTrouble(absl::AbortedError("broken pipe"));
  EXPECT_EQ(hung_up.severity, Severity::kWrong);
  EXPECT_EQ(hung_up.cure, "see the daemon's log");
  const Finding ours = CheckDaemonTrouble(absl::UnknownError("open files"));
  EXPECT_EQ(ours.severity, Severity::kWrong);
  EXPECT_THAT(ours.cure, HasSubstr("the daemon may be well"));
}

}  // namespace

}  // namespace fineserve::fsctl
