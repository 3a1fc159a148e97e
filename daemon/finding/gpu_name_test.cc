#include "daemon/finding/gpu_name.h"

#include <gtest/gtest.h>

namespace fineserve::finding {
namespace {

constexpr char kUuid[] = "GPU-ab12cd34-0000-1111-2222-333344445555";

TEST(MeansGpuTest, UuidAndItsBeginningNameTheGpuInAnyCase) {
  for (const char* name : {kUuid, "GPU-ab12", "gpu-AB12", "ab12cd34-0000", "AB",
                           "GPU-", "G", "MIG-ab12cd34", "mig-AB", ""}) {
    EXPECT_TRUE(MeansGpu(name, kUuid)) << name;
  }
}

TEST(MeansGpuTest, PartWithinTheUuidAndPatternsNameNone) {
  for (const char* name : {"12cd34", "GPU-cd", "3333", "GPU-ab12*", "*", "?",
                           "[a]", "GPU-ab12cd34-0000-1111-2222-3333444455550",
                           "/run/fineserve/GPU-ab12", "PU-ab12"}) {
    EXPECT_FALSE(MeansGpu(name, kUuid)) << name;
  }
}

TEST(MayBeOneGpuTest, LongerNameMayBeTheShorterOnesGpu) {
  EXPECT_TRUE(MayBeOneGpu("GPU-a", "GPU-ab"));
  EXPECT_TRUE(MayBeOneGpu("GPU-AB", "MIG-a"));
  EXPECT_FALSE(MayBeOneGpu("GPU-aa", "GPU-ab"));
}

}  // namespace
}  // namespace fineserve::finding
