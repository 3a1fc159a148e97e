// May one call set access, or unmap, over a range in which one handle is mapped
// many times? Views are first mapped to such a range. Where the driver refuses
// it, they make one call for each mapping.

#include <gtest/gtest.h>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr uint64_t kMappings = 512;

CONFORMANCE_TEST(Aliases, OneCallCoversManyMappingsOfOneHandle) {
  const Session gpu;
  const uint64_t bytes = gpu.granularity();
  const auto handle = gpu.Create(bytes);
  const CUdeviceptr base = gpu.Reserve(kMappings * bytes);
  const CUmemAccessDesc access =
      DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  for (uint64_t i = 0; i < kMappings; ++i) {
    ASSERT_EQ(Cuda().cuMemMap(base + i * bytes, bytes, 0, handle, 0),
              CUDA_SUCCESS);
  }
  Timed set, unmap;
  EXPECT_EQ(set([&] {
              return Cuda().cuMemSetAccess(base, kMappings * bytes, &access, 1);
            }),
            CUDA_SUCCESS);
  gpu.Write(base, 7);
  EXPECT_EQ(gpu.Read(base + (kMappings - 1) * bytes), 7u);
  EXPECT_EQ(unmap([&] { return Cuda().cuMemUnmap(base, kMappings * bytes); }),
            CUDA_SUCCESS);
  Figure("set_access_512_ms", set.total_ms());
  Figure("unmap_512_ms", unmap.total_ms());
}

}  // namespace
}  // namespace fineserve::gpu
