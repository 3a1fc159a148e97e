#include "tools/fsctl/run/daemon_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

TEST(GpuToServeTest, IsTheNamedOneElseTheFirstThatThisProcessSees) {
  EXPECT_EQ(GpuToServe("GPU-12", nullptr, "/x/emucuda"), "GPU-12");
  EXPECT_EQ(GpuToServe("", nullptr, "/x/emucuda"), "0");
  EXPECT_EQ(GpuToServe("", "/usr/lib:/x/emucuda2", "/x/emucuda"), "0");
}

TEST(GpuToServeTest, IsEmulatedIfTheLoaderFindsTheEmulatedDriver) {
  EXPECT_EQ(GpuToServe("", "/usr/lib:/x/emucuda", "/x/emucuda"), "emulated");
  EXPECT_EQ(GpuToServe("GPU-12", "/x/emucuda", "/x/emucuda"), "GPU-12");
}

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
