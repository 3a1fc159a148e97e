#include "tools/fsctl/doctor/nvml_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

TEST(NvmlProbeTest, MissingLibraryIsUnavailable) {
  const auto modes =
      GpuModes("/nonexistent/libnvidia-ml.so.1", absl::Minutes(1));
  EXPECT_EQ(modes.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(modes.status().message()), HasSubstr("/nonexistent"));
}

TEST(NvmlProbeTest, GpuModesAreReadLineByLine) {
  const auto modes = ParseGpuModes("gpu 0 1 1 0 GPU-a\ngpu 1 0 0 3 GPU-b\n");
  ASSERT_TRUE(modes.ok());
  ASSERT_EQ(modes->size(), 2u);
  EXPECT_EQ((*modes)[0].uuid, "GPU-a");
  EXPECT_FALSE((*modes)[0].now);
  EXPECT_TRUE((*modes)[0].next);
  EXPECT_TRUE((*modes)[1].now);
  EXPECT_FALSE((*modes)[1].next);
  EXPECT_TRUE((*modes)[0].persistent);
  EXPECT_FALSE((*modes)[1].persistent);
  EXPECT_EQ((*modes)[1].compute, 3);
}

TEST(NvmlProbeTest, ErrorAndSilenceAreStatuses) {
  EXPECT_EQ(ParseGpuModes("error too old\n").status().message(), "too old");
  EXPECT_FALSE(ParseGpuModes("").ok());
}

}  // namespace
}  // namespace fineserve::fsctl
