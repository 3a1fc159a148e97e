#include "tools/fsctl/processes/driver_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

TEST(DriverProbeTest, MissingLibraryIsAnErrorOfTheChildOnly) {
  const auto driver =
      ProbeDriver("/nonexistent/libcuda.so.1", absl::Minutes(1));
  EXPECT_FALSE(driver.ok());
  EXPECT_THAT(std::string(driver.status().message()),
              HasSubstr("/nonexistent"));
}

TEST(DriverProbeTest, AnswerIsParsedLineByLine) {
  const auto driver = ParseProbe(
      "version 13000\ndevice 1 0 GPU-a NVIDIA H200\n"
      "device 0 1 GPU-b X\n");
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ(driver->version, 13000);
  ASSERT_EQ(driver->devices.size(), 2u);
  EXPECT_EQ(driver->devices[0].name, "NVIDIA H200");
  EXPECT_EQ(driver->devices[0].uuid, "GPU-a");
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

}  // namespace
}  // namespace fineserve::fsctl
