#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/fsctl/doctor_checks.h"
#include "tools/fsctl/doctor_report.h"

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
  EXPECT_THAT(check.found, HasSubstr("does not load quietly"));
  unlink(file.c_str());
  EXPECT_THAT(CheckShim().found, HasSubstr("not found; looked at " + file));
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

TEST(DriverProbeTest, MissingLibraryIsAnErrorOfTheChildOnly) {
  const auto driver =
      ProbeDriver("/nonexistent/libcuda.so.1", absl::Seconds(20));
  EXPECT_FALSE(driver.ok());
  EXPECT_THAT(std::string(driver.status().message()),
              HasSubstr("/nonexistent"));
}

TEST(DriverProbeTest, AnswerIsParsedLineByLine) {
  const auto driver =
      ParseProbe("version 13000\ndevice 1 0 NVIDIA H200\ndevice 0 1 X\n");
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ(driver->version, 13000);
  ASSERT_EQ(driver->devices.size(), 2u);
  EXPECT_EQ(driver->devices[0].name, "NVIDIA H200");
  EXPECT_TRUE(driver->devices[0].virtual_memory);
  EXPECT_FALSE(driver->devices[0].posix_descriptors);
  EXPECT_TRUE(driver->devices[1].posix_descriptors);
}

TEST(DriverProbeTest, ErrorAndSilenceAreStatuses) {
  EXPECT_EQ(ParseProbe("error cuInit: no device\n").status().message(),
            "cuInit: no device");
  EXPECT_FALSE(ParseProbe("").ok());
  EXPECT_FALSE(ParseProbe("version x\n").ok());
}

TEST(DoctorReportTest, TextIsTheGoldenOne) {
  const std::vector<Check> checks = {
      {Result::kOk, "memfd", "works", ""},
      {Result::kFail, "shim", "not found", "install it"},
      {Result::kSkipped, "MIG", "not checked", ""},
      {Result::kWarn, "MPS", "runs", "stop it"}};
  EXPECT_EQ(DoctorText(checks, false),
            "CHECK  RESULT  FOUND\n"
            "memfd  ok      works\n"
            "shim   FAIL    not found\n"
            "               fix: install it\n"
            "MIG    -       not checked\n"
            "MPS    warn    runs\n"
            "               fix: stop it\n"
            "\n"
            "1 problem, 1 warning\n");
  EXPECT_TRUE(AnyFailed(checks));
  const auto json = nlohmann::json::parse(DoctorJson(checks));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["checks"][1]["fix"], "install it");
}

TEST(DoctorReportTest, WarningsAloneAreNoFailure) {
  EXPECT_FALSE(AnyFailed({{Result::kWarn, "MPS", "runs", "stop it"}}));
}

}  // namespace
}  // namespace fineserve::fsctl
