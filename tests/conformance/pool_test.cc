// Stream-ordered allocation: when memory may be reused, what a pool keeps, and
// sharing between processes.

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

constexpr uint64_t kPooledBytes = 8 * kMiB;

CUmemoryPool NewPool(CUmemAllocationHandleType handles) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = handles;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(Cuda().cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  return pool;
}

CUdeviceptr AllocateFromPool(uint64_t bytes, CUmemoryPool pool,
                             CUstream stream) {
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAllocFromPoolAsync(&address, bytes, pool, stream),
            CUDA_SUCCESS);
  return address;
}

uint64_t Attribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
  uint64_t value = 0;
  EXPECT_EQ(Cuda().cuMemPoolGetAttribute(pool, attribute, &value),
            CUDA_SUCCESS);
  return value;
}

void KeepAll(CUmemoryPool pool) {
  uint64_t all = ~uint64_t{0};
  EXPECT_EQ(Cuda().cuMemPoolSetAttribute(
                pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Pool, DefaultPoolIsCurrentUntilAnotherIsSet) {
  const Session gpu;
  CUmemoryPool preset = nullptr, current = nullptr;
  ASSERT_EQ(Cuda().cuDeviceGetDefaultMemPool(&preset, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, preset);
  const CUmemoryPool mine = NewPool(CU_MEM_HANDLE_TYPE_NONE);
  ASSERT_EQ(Cuda().cuDeviceSetMemPool(0, mine), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, mine);
  CUdeviceptr address = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&address, kPooledBytes, NewStream()),
            CUDA_SUCCESS);
  EXPECT_GE(Attribute(mine, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), kPooledBytes);
  // Destroying the current pool makes the default one current again.
  ASSERT_EQ(Cuda().cuMemPoolDestroy(mine), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, preset);
}

CONFORMANCE_TEST(Pool, DefaultPoolCannotBeDestroyed) {
  const Session gpu;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(Cuda().cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Pool, MemoryWorksInItsStream) {
  const Session gpu;
  const CUstream stream = NewStream();
  CUdeviceptr address = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&address, kPooledBytes, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async(address, 7, kPooledBytes / 4, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(address + kPooledBytes - 4), 7u);
  EXPECT_EQ(Cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Pool, SameStreamReusesFreedMemoryAtOnce) {
  const Session gpu;
  const CUmemoryPool pool = NewPool(CU_MEM_HANDLE_TYPE_NONE);
  const CUstream stream = NewStream();
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  const CUdeviceptr first = AllocateFromPool(kPooledBytes, pool, stream);
  ASSERT_EQ(Cuda().cuMemFreeAsync(first, stream), CUDA_SUCCESS);
  EXPECT_EQ(AllocateFromPool(kPooledBytes, pool, stream), first);
}

CONFORMANCE_TEST(Pool, OtherStreamGetsFreedMemoryOnlyBehindTheFree) {
  const Session gpu;
  const CUmemoryPool pool = NewPool(CU_MEM_HANDLE_TYPE_NONE);
  KeepAll(pool);
  // Forbids the driver from making the second stream wait for the first.
  int no = 0;
  ASSERT_EQ(Cuda().cuMemPoolSetAttribute(
                pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no),
            CUDA_SUCCESS);
  const CUstream first = NewStream(), second = NewStream();
  const CUdeviceptr address = AllocateFromPool(kPooledBytes, pool, first);
  Gate gate;
  ASSERT_EQ(gate.Block(first), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemFreeAsync(address, first), CUDA_SUCCESS);
  const CUdeviceptr other = AllocateFromPool(kPooledBytes, pool, second);
  EXPECT_TRUE(other + kPooledBytes <= address ||
              address + kPooledBytes <= other);
  gate.Open();
  ASSERT_EQ(Cuda().cuStreamSynchronize(first), CUDA_SUCCESS);
  const uint64_t reserved =
      Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  EXPECT_EQ(AllocateFromPool(kPooledBytes, pool, second), address);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
}

CONFORMANCE_TEST(Pool, SynchronisationGivesBackWhatExceedsTheThreshold) {
  const Session gpu;
  const CUmemoryPool pool = NewPool(CU_MEM_HANDLE_TYPE_NONE);
  const CUstream stream = NewStream();
  const uint64_t before = gpu.FreeBytes();
  const CUdeviceptr address = AllocateFromPool(64 * kMiB, pool, stream);
  EXPECT_LE(gpu.FreeBytes() + 64 * kMiB, before);
  ASSERT_EQ(Cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_EQ(gpu.FreeBytes(), before);
}

CONFORMANCE_TEST(Pool, ThresholdKeepsMemoryAndTrimReleasesIt) {
  const Session gpu;
  const CUmemoryPool pool = NewPool(CU_MEM_HANDLE_TYPE_NONE);
  KeepAll(pool);
  const CUstream stream = NewStream();
  const CUdeviceptr address = AllocateFromPool(64 * kMiB, pool, stream);
  ASSERT_EQ(Cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_GE(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * kMiB);
  ASSERT_EQ(Cuda().cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
}

CONFORMANCE_TEST(Pool, HighWaterMarksRememberAndAreReset) {
  const Session gpu;
  const CUmemoryPool pool = NewPool(CU_MEM_HANDLE_TYPE_NONE);
  const CUstream stream = NewStream();
  const CUdeviceptr address = AllocateFromPool(kPooledBytes, pool, stream);
  ASSERT_EQ(Cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_GE(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), kPooledBytes);
  uint64_t zero = 0;
  ASSERT_EQ(
      Cuda().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero),
      CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
}

CONFORMANCE_TEST(Pool, PlainFreeTakesPoolMemory) {
  const Session gpu;
  CUdeviceptr address = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&address, kPooledBytes, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemFree_v2(address), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Pool, SizeLimitIsObeyed) {
  const Session gpu;
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  props.maxSize = 64 * kMiB;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(Cuda().cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAllocFromPoolAsync(&address, 256 * kMiB, pool, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Cuda().cuMemAllocFromPoolAsync(&address, kMiB, pool, nullptr),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Pool, ExportedPointerIsTheSameMemoryInAnotherProcess) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    const int fd = channel.ReceiveDescriptor();
    CUmemPoolPtrExportData data;
    for (unsigned char& byte : data.reserved) {
      byte = static_cast<unsigned char>(channel.Receive());
    }
    CUmemoryPool pool = nullptr;
    ASSERT_EQ(Cuda().cuMemPoolImportFromShareableHandle(
                  &pool, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_SUCCESS);
    CUdeviceptr address = 0;
    ASSERT_EQ(Cuda().cuMemPoolImportPointer(&address, pool, &data),
              CUDA_SUCCESS);
    EXPECT_EQ(gpu.Read(address), 31u);
    gpu.Write(address, 32);
    EXPECT_EQ(Cuda().cuMemAllocFromPoolAsync(&address, kMiB, pool, nullptr),
              CUDA_ERROR_INVALID_VALUE);  // its memory is the exporter's
    channel.Send(0);
  });
  const Session gpu;
  const CUmemoryPool pool = NewPool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUdeviceptr address = AllocateFromPool(kPooledBytes, pool, nullptr);
  gpu.Write(address, 31);
  int fd = -1;
  ASSERT_EQ(Cuda().cuMemPoolExportToShareableHandle(
                &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  CUmemPoolPtrExportData data;
  ASSERT_EQ(Cuda().cuMemPoolExportPointer(&data, address), CUDA_SUCCESS);
  peer.channel().SendDescriptor(fd);
  close(fd);
  for (const unsigned char byte : data.reserved) peer.channel().Send(byte);
  peer.channel().Receive();
  EXPECT_EQ(gpu.Read(address), 32u);
  peer.Join();
}

CONFORMANCE_TEST(Pool, PoolWithoutHandleTypeIsNotExported) {
  const Session gpu;
  int fd = -1;
  EXPECT_NE(Cuda().cuMemPoolExportToShareableHandle(
                &fd, NewPool(CU_MEM_HANDLE_TYPE_NONE),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
}

}  // namespace
}  // namespace fineserve::conformance
