#include "daemon/fineserved/start/gpu_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace fineserve::server {
namespace {

using ::testing::HasSubstr;

// Returns a device whose UUID no GPU has, and no other run of this test.
backing::Device OwnDevice(bool emulated) {
  backing::Device device;
  const pid_t pid = getpid();
  memcpy(device.uuid, &pid, sizeof(pid));
  device.emulated = emulated;
  return device;
}

TEST(GpuClaimTest, GpuIsClaimedOnceAndFreeAgainWithItsDescriptor) {
  const backing::Device device = OwnDevice(false);
  absl::StatusOr<driver::Descriptor> first = ClaimGpu(device);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = ClaimGpu(device);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("pid " + std::to_string(getpid()) + " of user " +
                        std::to_string(geteuid()) + " serves this GPU"));
  first->Reset();
  EXPECT_TRUE(ClaimGpu(device).ok());
}

TEST(GpuClaimTest, EmulatedMachinesHaveTheirOwnGpus) {
  const backing::Device device = OwnDevice(true);
  setenv("EMUCUDA_DIR", "/tmp/one", 1);
  const auto one = ClaimGpu(device);
  EXPECT_TRUE(one.ok()) << one.status();
  setenv("EMUCUDA_DIR", ("/" + std::string(300, 'x') + "/two").c_str(), 1);
  const auto two = ClaimGpu(device);
  EXPECT_TRUE(two.ok()) << two.status();
  EXPECT_NE(ClaimName(OwnDevice(false)), ClaimName(device));
  unsetenv("EMUCUDA_DIR");
}

}  // namespace
}  // namespace fineserve::server
