#include "tools/fsctl/run/daemon_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

ProbedDriver DriverWith(const std::vector<const char*>& uuids) {
  ProbedDriver driver;
  for (const char* uuid : uuids) {
    driver.devices.push_back({"H200", true, true, uuid});
  }
  return driver;
}

TEST(VisibleGpuTest, UuidsAreHandedAsTheyAre) {
  EXPECT_THAT(VisibleByUuid({"MIG-1"}),
              ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "MIG-1")));
  EXPECT_THAT(VisibleByUuid({"GPU-b", "GPU-a"}),
              ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")));
}

TEST(VisibleGpuTest, IndexIsThePlaceInTheOrderThatIsPinned) {
  const ProbedDriver driver = DriverWith({"GPU-c", "GPU-a", "GPU-b"});
  for (const auto& [uuids, indices] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"GPU-b"}, "2"},
           {{"GPU-b", "GPU-c", "GPU-a"}, "2,0,1"},
           {{"GPU-b", "GPU-x", "GPU-a"}, "2,1"}}) {
    const auto environment = IndicesAmong(uuids, driver);
    ASSERT_TRUE(environment.ok()) << environment.status();
    EXPECT_THAT(*environment,
                ElementsAre(Pair("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
                            Pair("CUDA_VISIBLE_DEVICES", indices)));
  }
}

TEST(VisibleGpuTest, ProgramDoesNotRunOnAnotherGpuIfTheDriverLacksItsOwn) {
  const absl::Status s =
      IndicesAmong({"GPU-b", "GPU-a"}, DriverWith({"GPU-a"})).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("GPU-b"));
}

}  // namespace

}  // namespace fineserve::fsctl
