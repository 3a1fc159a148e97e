// Pointer attributes, managed and registered memory.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>

#include <cstdint>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

constexpr uint64_t kPointedBytes = 4 * kMiB;

template <typename T>
T Get(CUpointer_attribute attribute, CUdeviceptr address) {
  T value = {};
  EXPECT_EQ(Cuda().cuPointerGetAttribute(&value, attribute, address),
            CUDA_SUCCESS)
      << "attribute " << attribute;
  return value;
}

CUresult Ask(CUpointer_attribute attribute, CUdeviceptr address) {
  uint64_t room[2] = {};
  return Cuda().cuPointerGetAttribute(room, attribute, address);
}

CUdeviceptr AllocateManaged(uint64_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  return address;
}

// Returns a page of host memory, aligned as registration requires.
void* HostPage() {
  void* host = aligned_alloc(4096, 4096);
  EXPECT_NE(host, nullptr);
  memset(host, 0, 4096);
  return host;
}

CONFORMANCE_TEST(Pointer, DeviceMemoryIsDescribed) {
  const Session gpu;
  const CUdeviceptr address = Allocate(kPointedBytes);
  const CUdeviceptr inside = address + 4096;
  EXPECT_EQ(Get<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(Get<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside),
            gpu.context());
  EXPECT_EQ(Get<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside),
            inside);
  EXPECT_EQ(Get<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside),
            address);
  EXPECT_EQ(Get<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside),
            kPointedBytes);
  EXPECT_EQ(Get<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 0);
  EXPECT_EQ(Get<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside) & 0xff, 0u);
  EXPECT_EQ(Ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, inside),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Pointer, OnlyLegacyMemoryIsLegacyIpcCapable) {
  const Session gpu;
  const auto capable = [](CUdeviceptr address) {
    return Get<uint64_t>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                         address) &
           0xff;
  };
  EXPECT_EQ(capable(Allocate(kPointedBytes)), 1u);
  EXPECT_EQ(capable(gpu.NewMapping(gpu.granularity())), 0u);
}

CONFORMANCE_TEST(Pointer, VirtualMemoryNamesItsHandleTypes) {
  const Session gpu;
  EXPECT_EQ(Get<uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                          gpu.NewMapping(gpu.granularity())),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(Get<uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                          Allocate(kPointedBytes)),
            CU_MEM_HANDLE_TYPE_NONE);
}

CONFORMANCE_TEST(Pointer, PoolMemoryNamesItsPool) {
  const Session gpu;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(Cuda().cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&address, kPointedBytes, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Get<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address),
            pool);
}

CONFORMANCE_TEST(Pointer, BuffersHaveDifferentIds) {
  const Session gpu;
  const auto id = [](CUdeviceptr address) {
    return Get<uint64_t>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
  };
  const CUdeviceptr first = Allocate(1000), second = Allocate(1000);
  EXPECT_NE(id(first), id(second));
  EXPECT_EQ(id(first), id(first + 999));
}

CONFORMANCE_TEST(Pointer, UnknownAddressIsRefusedAloneAndZeroInAList) {
  const Session gpu;
  int stranger = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(&stranger);
  EXPECT_EQ(Ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  unsigned type = 77;
  CUdeviceptr pointer = 77;
  void* values[] = {&type, &pointer};
  EXPECT_EQ(Cuda().cuPointerGetAttributes(2, attributes, values, address),
            CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(pointer, 0u);
}

CONFORMANCE_TEST(Managed, HostAndDeviceSeeTheSameBytes) {
  const Session gpu;
  const CUdeviceptr address = AllocateManaged(kPointedBytes);
  auto* const words = reinterpret_cast<volatile uint32_t*>(address);
  words[1] = 21;
  EXPECT_EQ(gpu.Read(address + 4), 21u);
  ASSERT_EQ(Cuda().cuMemsetD32_v2(address, 22, 4), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(words[3], 22u);
  EXPECT_NE(Get<uint64_t>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address) & 0xff, 0u);
  EXPECT_EQ(Get<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
            address);
  EXPECT_EQ(Cuda().cuMemFree_v2(address), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Managed, AdviceIsRemembered) {
  const Session gpu;
  const CUdeviceptr address = AllocateManaged(kPointedBytes);
  ASSERT_EQ(Cuda().cuMemAdvise_v2(address, kPointedBytes,
                                  CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                                  {CU_MEM_LOCATION_TYPE_DEVICE, 0}),
            CUDA_SUCCESS);
  int where = 77;
  ASSERT_EQ(
      Cuda().cuMemRangeGetAttribute(&where, sizeof(where),
                                    CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                    address, kPointedBytes),
      CUDA_SUCCESS);
  EXPECT_EQ(where, 0);
}

CONFORMANCE_TEST(Managed, PlainMemoryTakesNoAdvice) {
  const Session gpu;
  EXPECT_NE(Cuda().cuMemAdvise_v2(Allocate(kPointedBytes), kPointedBytes,
                                  CU_MEM_ADVISE_SET_READ_MOSTLY,
                                  {CU_MEM_LOCATION_TYPE_DEVICE, 0}),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Registered, DeviceReachesHostMemory) {
  const Session gpu;
  void* const host = HostPage();
  ASSERT_EQ(
      Cuda().cuMemHostRegister_v2(host, 4096, CU_MEMHOSTREGISTER_DEVICEMAP),
      CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(Cuda().cuMemHostGetDevicePointer_v2(&address, host, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32_v2(address, 41, 4), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<uint32_t*>(host)[3], 41u);
  EXPECT_EQ(Get<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CU_MEMORYTYPE_HOST);
  EXPECT_EQ(Cuda().cuMemHostUnregister(host), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemHostUnregister(host),
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  free(host);
}

CONFORMANCE_TEST(Registered, TwiceIsRefused) {
  const Session gpu;
  void* const host = HostPage();
  ASSERT_EQ(Cuda().cuMemHostRegister_v2(host, 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemHostRegister_v2(host, 4096, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

}  // namespace
}  // namespace fineserve::conformance
