#include "tools/fsctl/doctor/machine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using Result = Check::Result;

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
  EXPECT_EQ(CheckRuntimeFolder(folder_).result, Result::kOk);
}

TEST_F(FolderTest, FolderOpenToOthersFailsWithTheCommandThatRepairsIt) {
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  const Check check = CheckRuntimeFolder(folder_);
  EXPECT_EQ(check.result, Result::kFail);
  EXPECT_EQ(check.fix, "chmod 700 " + folder_);
}

TEST_F(FolderTest, FolderThatOnlyRootMayEnterFails) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  ASSERT_EQ(seteuid(65534), 0);
  const Check check = CheckRuntimeFolder(folder_);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(check.result, Result::kFail);
  EXPECT_THAT(check.found, HasSubstr("this user may not enter it"));
}

TEST_F(FolderTest, LinkToAFolderIsNotTheFolder) {
  const std::string link = folder_ + "-link";
  ASSERT_EQ(symlink(folder_.c_str(), link.c_str()), 0);
  EXPECT_EQ(CheckRuntimeFolder(link).result, Result::kFail);
  unlink(link.c_str());
}

TEST_F(FolderTest, MissingFolderIsOnlyAWarning) {
  EXPECT_EQ(CheckRuntimeFolder(folder_ + "/none").result, Result::kWarn);
}

TEST_F(FolderTest, FileThatIsNoLibraryFailsAsShim) {
  const std::string file = folder_ + "/libfineserve_shim.so";
  std::ofstream(file) << "no library";
  setenv("FINESERVE_SHIM", file.c_str(), 1);
  const Check check = CheckShim();
  EXPECT_EQ(check.result, Result::kFail);
  EXPECT_THAT(check.found, HasSubstr("cannot be preloaded"));
  unlink(file.c_str());
  EXPECT_THAT(CheckShim().found, HasSubstr("not found; looked for " + file));
  unsetenv("FINESERVE_SHIM");
}

TEST(DriverCheckTest, OldDriverFails) {
  const auto checks = CheckDriver(
      "libcuda.so.1", ProbedDriver{11080, {{"Old GPU", true, true}}});
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].result, Result::kFail);
  EXPECT_THAT(checks[0].found, HasSubstr("CUDA 11.8"));
  EXPECT_THAT(checks[0].fix, HasSubstr("12.0"));
}

TEST(DriverCheckTest, DeviceWithoutExportFailsNamingIt) {
  const auto checks =
      CheckDriver("libcuda.so.1",
                  ProbedDriver{13000, {{"A", true, true}, {"B", true, false}}});
  ASSERT_EQ(checks.size(), 3u);
  EXPECT_EQ(checks[0].result, Result::kOk);
  EXPECT_EQ(checks[1].result, Result::kOk);
  EXPECT_EQ(checks[2].result, Result::kFail);
  EXPECT_THAT(checks[2].found, HasSubstr("B: no export as POSIX"));
}

TEST(DriverCheckTest, NoDeviceFails) {
  EXPECT_EQ(CheckDriver("x", ProbedDriver{13000, {}})[0].result, Result::kFail);
}

TEST(MigTest, OffIsOkAndUnknownIsNotChecked) {
  const Check off = CheckMig(std::vector<GpuMode>{{"GPU-a"}, {"GPU-b"}});
  EXPECT_EQ(off.result, Result::kOk);
  EXPECT_EQ(off.found, "off on 2 GPU(s)");
  const Check unknown = CheckMig(absl::UnavailableError("too old"));
  EXPECT_EQ(unknown.result, Result::kSkipped);
  EXPECT_EQ(unknown.found, "not checked: too old");
}

TEST(MigTest, GpusThatAreOrWillBeCutAreNamed) {
  const Check on = CheckMig(std::vector<GpuMode>{{"GPU-a"},
                                                 {"GPU-b", true, true},
                                                 {"GPU-c", false, true},
                                                 {"GPU-d", true, false}});
  EXPECT_EQ(on.result, Result::kWarn);
  EXPECT_EQ(on.found,
            "on for GPU-b, GPU-c (after its next reset), GPU-d (until its next "
            "reset): MIG instances are not supported");
}

TEST(ModesTest, GpusThatForgetOrTakeOneProcessAreNamed) {
  GpuMode forgets{"GPU-a"}, alone{"GPU-b"};
  forgets.persistent = false;
  alone.compute = 3;
  const std::vector<GpuMode> gpus = {forgets, alone};
  const Check persistence = CheckPersistence(gpus);
  EXPECT_EQ(persistence.result, Result::kWarn);
  EXPECT_THAT(persistence.found, HasSubstr("off for GPU-a: "));
  const Check compute = CheckComputeMode(gpus);
  EXPECT_EQ(compute.result, Result::kFail);
  EXPECT_THAT(compute.found, HasSubstr("on GPU-b: "));
  EXPECT_EQ(CheckPersistence(std::vector<GpuMode>{alone}).result, Result::kOk);
  EXPECT_EQ(CheckComputeMode(absl::UnavailableError("too old")).result,
            Result::kSkipped);
}

}  // namespace
}  // namespace fineserve::fsctl
