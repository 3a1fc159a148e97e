#include "tools/fsctl/run/visible_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(VisibleGpuTest, UuidIsHandedAsItIs) {
  EXPECT_THAT(VisibleByUuid("MIG-1"),
              ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "MIG-1")));
}

TEST(VisibleGpuTest, IndexIsThePlaceInTheOrderThatIsPinned) {
  ProbedDriver driver;
  for (const char* uuid : {"GPU-c", "GPU-a", "GPU-b"}) {
    driver.devices.push_back({"H200", true, true, uuid});
  }
  const auto environment = IndexAmong("GPU-b", driver);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_THAT(*environment, ElementsAre(Pair("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
                                        Pair("CUDA_VISIBLE_DEVICES", "2")));
}

TEST(VisibleGpuTest, GpuThatTheDriverLacksHasNoIndex) {
  ProbedDriver driver;
  driver.devices.push_back({"H200", true, true, "GPU-a"});
  const absl::Status s = IndexAmong("GPU-b", driver).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("GPU-b"));
}

}  // namespace
}  // namespace fineserve::fsctl
