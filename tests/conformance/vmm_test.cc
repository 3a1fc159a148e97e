// The rules of virtual memory management that FineServe builds on, with one
// test for each rule.

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

CONFORMANCE_TEST(Vmm, SizeThatIsNoMultipleOfTheGranularityIsRefused) {
  const Session gpu;
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  for (const uint64_t bytes : {uint64_t{0}, gpu.granularity() + 4096}) {
    EXPECT_EQ(Cuda().cuMemCreate(&handle, bytes, &prop, 0),
              CUDA_ERROR_INVALID_VALUE)
        << bytes;
  }
}

CONFORMANCE_TEST(Vmm, ImportedMemoryDoesNotSayThatItIsForNetworkCards) {
  const Session gpu;
  int can = 0;
  ASSERT_EQ(
      Cuda().cuDeviceGetAttribute(
          &can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0),
      CUDA_SUCCESS);
  if (can == 0) GTEST_SKIP() << "this device has no GPUDirect RDMA";
  for (unsigned char capable : {0, 1}) {
    CUmemAllocationProp prop = DeviceMemoryProperties();
    prop.allocFlags.gpuDirectRDMACapable = capable;
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(Cuda().cuMemCreate(&handle, gpu.granularity(), &prop, 0),
              CUDA_SUCCESS);
    CUmemAllocationProp seen = {};
    EXPECT_EQ(Cuda().cuMemGetAllocationPropertiesFromHandle(&seen, handle),
              CUDA_SUCCESS);
    EXPECT_EQ(seen.allocFlags.gpuDirectRDMACapable, capable);
    const int fd = gpu.Export(handle);
    EXPECT_EQ(
        Cuda().cuMemGetAllocationPropertiesFromHandle(&seen, gpu.Import(fd)),
        CUDA_SUCCESS);
    EXPECT_EQ(seen.allocFlags.gpuDirectRDMACapable, 0);
    close(fd);
  }
}

CONFORMANCE_TEST(Vmm, NullArgumentsAreRefused) {
  const Session gpu;
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cuda().cuMemCreate(nullptr, gpu.granularity(), &prop, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemCreate(&handle, gpu.granularity(), nullptr, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemAddressReserve(nullptr, gpu.granularity(), 0, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemSetAccess(gpu.NewMapping(gpu.granularity()),
                                  gpu.granularity(), nullptr, 1),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Vmm, MoreThanTheDeviceHasIsOutOfMemory) {
  const Session gpu;
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  const uint64_t unit = gpu.granularity();
  const uint64_t bytes = gpu.TotalBytes() / unit * unit + unit;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cuda().cuMemCreate(&handle, bytes, &prop, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
}

CONFORMANCE_TEST(Vmm, SecondReleaseIsRefused) {
  EMULATED_ONLY("what a handle is after its release");
  const Session gpu;
  const auto handle = gpu.Create(gpu.granularity());
  EXPECT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Vmm, ReservationIsAlignedAsAsked) {
  const Session gpu;
  const uint64_t alignment = 64 * kMiB;
  CUdeviceptr address = 0;
  ASSERT_EQ(
      Cuda().cuMemAddressReserve(&address, gpu.granularity(), alignment, 0, 0),
      CUDA_SUCCESS);
  EXPECT_EQ(address % alignment, 0u);
  EXPECT_EQ(Cuda().cuMemAddressFree(address, gpu.granularity()), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Vmm, FreeAddressHintIsHonoured) {
  EMULATED_ONLY("whether a hint is followed");
  const Session gpu;
  const uint64_t bytes = gpu.granularity();
  // Makes sure that the hint is not where the next reservation would be placed
  // anyway.
  const CUdeviceptr range = gpu.Reserve(8 * bytes);
  const CUdeviceptr wanted = range + 3 * bytes;
  ASSERT_EQ(Cuda().cuMemAddressFree(range, 8 * bytes), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAddressReserve(&address, bytes, 0, wanted, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(address, wanted);
}

CONFORMANCE_TEST(Vmm, TakenAddressHintYieldsAnotherAddress) {
  const Session gpu;
  const uint64_t bytes = gpu.granularity();
  const CUdeviceptr taken = gpu.Reserve(bytes);
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAddressReserve(&address, bytes, 0, taken, 0),
            CUDA_SUCCESS);
  EXPECT_NE(address, taken);
}

CONFORMANCE_TEST(Vmm, MapWithNonZeroOffsetIsRefused) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const auto handle = gpu.Create(2 * unit);
  const CUdeviceptr range = gpu.Reserve(2 * unit);
  for (const uint64_t bytes : {unit, 2 * unit}) {
    EXPECT_EQ(Cuda().cuMemMap(range, bytes, unit, handle, 0),
              CUDA_ERROR_NOT_SUPPORTED)
        << bytes;
  }
}

CONFORMANCE_TEST(Vmm, MapOutsideAReservationIsRefused) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.Reserve(unit);
  EXPECT_EQ(Cuda().cuMemMap(address, 2 * unit, 0, gpu.Create(2 * unit), 0),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Vmm, MapOverAMappingIsRefused) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(unit);
  EXPECT_NE(Cuda().cuMemMap(address, unit, 0, gpu.Create(unit), 0),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Vmm, MapOfAReleasedHandleIsRefused) {
  EMULATED_ONLY("what a handle is after its release");
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const auto handle = gpu.Create(unit);
  ASSERT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemMap(gpu.Reserve(unit), unit, 0, handle, 0),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Vmm, OneHandleAtTwoAddressesAliases) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const auto handle = gpu.Create(unit);
  const CUdeviceptr range = gpu.Reserve(2 * unit);
  gpu.MapAt(range, unit, handle);
  gpu.MapAt(range + unit, unit, handle);
  gpu.Write(range + 64, 0xabcd);
  EXPECT_EQ(gpu.Read(range + unit + 64), 0xabcdu);
}

CONFORMANCE_TEST(Vmm, MappingKeepsMemoryAliveAfterRelease) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(unit);  // releases its handle
  gpu.Write(address, 7);
  std::vector<CUdeviceptr> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(gpu.NewMapping(unit));
    gpu.Write(others.back(), 8);
  }
  EXPECT_EQ(gpu.Read(address), 7u);
}

CONFORMANCE_TEST(Vmm, OneSetAccessCoversSeveralMappings) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr range = gpu.Reserve(3 * unit);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Cuda().cuMemMap(range + i * unit, unit, 0, gpu.Create(unit), 0),
              CUDA_SUCCESS);
  }
  const auto access = DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_EQ(Cuda().cuMemSetAccess(range, 3 * unit, &access, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32_v2(range, 5, 3 * unit / 4), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(range + 3 * unit - 4), 5u);
}

// Driver 580.159 returns success, and stops at the hole.
CONFORMANCE_TEST(Vmm, SetAccessOverAHoleDoesNotReachWhatIsBehindIt) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr range = gpu.Reserve(3 * unit);
  for (const int i : {0, 2}) {
    ASSERT_EQ(Cuda().cuMemMap(range + i * unit, unit, 0, gpu.Create(unit), 0),
              CUDA_SUCCESS);
  }
  const auto access = DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUresult result = Cuda().cuMemSetAccess(range, 3 * unit, &access, 1);
  if (OnEmulatedDevice()) {
    EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
  }
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long behind = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_EQ(Cuda().cuMemGetAccess(&behind, &here, range + 2 * unit),
            CUDA_SUCCESS);
  EXPECT_EQ(behind, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

CONFORMANCE_TEST(Vmm, AccessReadsBackAsSet) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(unit);
  const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  for (const auto flags :
       {CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
    const auto access = DeviceAccess(flags);
    ASSERT_EQ(Cuda().cuMemSetAccess(address, unit, &access, 1), CUDA_SUCCESS);
    unsigned long long found = 99;
    EXPECT_EQ(Cuda().cuMemGetAccess(&found, &location, address), CUDA_SUCCESS);
    EXPECT_EQ(found, static_cast<unsigned long long>(flags));
  }
}

CONFORMANCE_TEST(Vmm, OneUnmapCoversSeveralMappings) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr range = gpu.Reserve(2 * unit);
  gpu.MapAt(range, unit, gpu.Create(unit));
  gpu.MapAt(range + unit, unit, gpu.Create(unit));
  EXPECT_EQ(Cuda().cuMemUnmap(range, 2 * unit), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAddressFree(range, 2 * unit), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Vmm, UnmapOfHalfAMappingIsRefused) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(2 * unit);
  EXPECT_EQ(Cuda().cuMemUnmap(address, unit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemUnmap(address, 2 * unit), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Vmm, FreeOfAMappedReservationIsRefused) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(unit);
  EXPECT_EQ(Cuda().cuMemAddressFree(address, unit), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Vmm, AddressesSurviveTheirMemory) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(unit);
  gpu.Write(address, 1);
  ASSERT_EQ(Cuda().cuMemUnmap(address, unit), CUDA_SUCCESS);
  const auto second = gpu.Create(unit);
  gpu.MapAt(address, unit, second);
  gpu.Write(address, 2);
  EXPECT_EQ(gpu.Read(address), 2u);
}

CONFORMANCE_TEST(Vmm, RetainedHandleNeedsItsOwnRelease) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.NewMapping(unit);  // releases its handle
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Cuda().cuMemRetainAllocationHandle(
                &handle, reinterpret_cast<void*>(address)),
            CUDA_SUCCESS);
  const CUdeviceptr alias = gpu.Reserve(unit);
  gpu.MapAt(alias, unit, handle);
  gpu.Write(address, 3);
  EXPECT_EQ(gpu.Read(alias), 3u);
  EXPECT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  EMULATED_ONLY("what a handle is after its release");
  EXPECT_EQ(Cuda().cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Vmm, PropertiesReadBackAsCreated) {
  const Session gpu;
  CUmemAllocationProp prop = {};
  ASSERT_EQ(Cuda().cuMemGetAllocationPropertiesFromHandle(
                &prop, gpu.Create(gpu.granularity())),
            CUDA_SUCCESS);
  EXPECT_EQ(prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(prop.location.id, 0);
}

CONFORMANCE_TEST(Vmm, NoContextIsNeeded) {
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemCreate(&handle, 2 * kMiB, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAddressReserve(&address, 2 * kMiB, 0, 0, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemMap(address, 2 * kMiB, 0, handle, 0), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Vmm, EightThousandGranulesFormOneRange) {
  const Session gpu;
  constexpr int kGranules = 8192;
  const uint64_t unit = gpu.granularity();
  if (gpu.FreeBytes() < kGranules * unit) {
    GTEST_SKIP() << "the device is smaller than " << kGranules << " granules";
  }
  const CUdeviceptr range = gpu.Reserve(kGranules * unit);
  for (int i = 0; i < kGranules; ++i) {
    const auto handle = gpu.Create(unit);
    ASSERT_EQ(Cuda().cuMemMap(range + i * unit, unit, 0, handle, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  }
  const auto access = DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_EQ(Cuda().cuMemSetAccess(range, kGranules * unit, &access, 1),
            CUDA_SUCCESS);
  const CUdeviceptr seam = range + 4096 * unit - 4;
  ASSERT_EQ(Cuda().cuMemsetD32_v2(seam, 9, 2), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(seam), 9u);
  EXPECT_EQ(gpu.Read(seam + 4), 9u);
  EXPECT_EQ(Cuda().cuMemUnmap(range, kGranules * unit), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fineserve::conformance
