// cuMemAlloc, memory information, copies and fills.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

CONFORMANCE_TEST(Memory, SmallAllocationsAreAlignedAndApart) {
  const Session gpu;
  std::vector<CUdeviceptr> all;
  for (uint32_t i = 0; i < 100; ++i) {
    all.push_back(Allocate(100));
    EXPECT_EQ(all.back() % 256, 0u);
    ASSERT_EQ(Cuda().cuMemsetD32_v2(all.back(), i, 25), CUDA_SUCCESS);
  }
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(gpu.Read(all[i]), i);
    EXPECT_EQ(gpu.Read(all[i] + 96), i);
  }
}

CONFORMANCE_TEST(Memory, AddressRangeIsTheAllocation) {
  const Session gpu;
  for (const uint64_t asked : {uint64_t{1000}, 5 * kMiB}) {
    const CUdeviceptr address = Allocate(asked);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    EXPECT_EQ(Cuda().cuMemGetAddressRange_v2(&base, &bytes, address + 999),
              CUDA_SUCCESS);
    EXPECT_EQ(base, address);
    EXPECT_EQ(bytes, asked);
  }
}

CONFORMANCE_TEST(Memory, SecondFreeIsRefused) {
  const Session gpu;
  const CUdeviceptr address = Allocate(4096);
  EXPECT_EQ(Cuda().cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Memory, ZeroBytesAndNullAreRefused) {
  const Session gpu;
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemAlloc_v2(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Memory, FreeGivesTheBytesBack) {
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  const CUdeviceptr address = Allocate(256 * kMiB);
  EXPECT_LE(gpu.FreeBytes() + 256 * kMiB, before);
  ASSERT_EQ(Cuda().cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_GE(gpu.FreeBytes(), before);
}

CONFORMANCE_TEST(Memory, UnmappedReleasedMemoryIsFree) {
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  const CUdeviceptr address = gpu.NewMapping(256 * kMiB);
  EXPECT_LE(gpu.FreeBytes() + 256 * kMiB, before);
  ASSERT_EQ(Cuda().cuMemUnmap(address, 256 * kMiB), CUDA_SUCCESS);
  EXPECT_GE(gpu.FreeBytes(), before);
}

CONFORMANCE_TEST(Memory, ReservedAddressesCostNoMemory) {
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  gpu.Reserve(gpu.TotalBytes() / gpu.granularity() * gpu.granularity());
  EXPECT_LT(before, gpu.FreeBytes() + 64 * kMiB);
}

CONFORMANCE_TEST(Memory, CountsUntilHandleAndLastMappingAreGone) {
  const Session gpu;
  const uint64_t bytes = 256 * kMiB;
  const uint64_t before = gpu.FreeBytes();
  const auto handle = gpu.Create(bytes);
  const CUdeviceptr first = gpu.Reserve(bytes), second = gpu.Reserve(bytes);
  const auto counted = [&] { return gpu.FreeBytes() + bytes <= before; };
  EXPECT_TRUE(counted()) << "from its creation on";
  gpu.MapAt(first, bytes, handle);
  gpu.MapAt(second, bytes, handle);
  ASSERT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_TRUE(counted()) << "two mappings left";
  ASSERT_EQ(Cuda().cuMemUnmap(first, bytes), CUDA_SUCCESS);
  EXPECT_TRUE(counted()) << "one mapping left";
  ASSERT_EQ(Cuda().cuMemUnmap(second, bytes), CUDA_SUCCESS);
  EXPECT_FALSE(counted());
}

CONFORMANCE_TEST(Memory, OneObjectMappedTwiceCountsOnce) {
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  const auto handle = gpu.Create(64 * kMiB);
  for (int i = 0; i < 8; ++i) {
    gpu.MapAt(gpu.Reserve(64 * kMiB), 64 * kMiB, handle);
  }
  EXPECT_LT(before, gpu.FreeBytes() + 2 * 64 * kMiB);
}

CONFORMANCE_TEST(Memory, CopiesArriveUnchanged) {
  const Session gpu;
  constexpr size_t kWords = 700'000;  // several granules, no round number
  std::vector<uint32_t> sent(kWords), received(kWords);
  std::iota(sent.begin(), sent.end(), 1u);
  const CUdeviceptr first = Allocate(kWords * 4 + 512);
  const CUdeviceptr second = Allocate(kWords * 4 + 512);
  ASSERT_EQ(Cuda().cuMemcpyHtoD_v2(first + 4, sent.data(), kWords * 4),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoD_v2(second + 8, first + 4, kWords * 4),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(received.data(), second + 8, kWords * 4),
            CUDA_SUCCESS);
  EXPECT_EQ(received, sent);
}

CONFORMANCE_TEST(Memory, CopyOfPageableMemoryTakesItsSourceAtTheCall) {
  const Session gpu;
  const CUdeviceptr address = Allocate(4096);
  uint32_t word = 1;
  ASSERT_EQ(Cuda().cuMemcpyHtoDAsync_v2(address, &word, 4, nullptr),
            CUDA_SUCCESS);
  word = 2;
  EXPECT_EQ(gpu.Read(address), 1u);
}

CONFORMANCE_TEST(Memory, AddressesTellUnifiedCopiesTheirDirection) {
  const Session gpu;
  const CUdeviceptr device = Allocate(64);
  uint64_t from = 0x1122334455667788, to = 0;
  const auto host = [](uint64_t* word) {
    return reinterpret_cast<CUdeviceptr>(word);
  };
  ASSERT_EQ(Cuda().cuMemcpy(device, host(&from), 8), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpy(device + 8, device, 8), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpy(host(&to), device + 8, 8), CUDA_SUCCESS);
  EXPECT_EQ(to, from);
}

CONFORMANCE_TEST(Memory, FillTouchesExactlyItsRange) {
  const Session gpu;
  const CUdeviceptr address = Allocate(8 * kMiB);
  struct Case {
    const char* name;
    unsigned char value;
    uint64_t offset;
    uint64_t bytes;
  };
  const Case cases[] = {{"small zero", 0, 4100, 20},
                        {"large zero, odd edges", 0, 4100, 3 * kMiB},
                        {"large zero, whole pages", 0, 4096, 2 * kMiB},
                        {"one", 0x5a, 12, 1},
                        {"large", 0x5a, 8196, 3 * kMiB + 5}};
  for (const Case& c : cases) {
    ASSERT_EQ(Cuda().cuMemsetD8_v2(address, 0xee, 8 * kMiB), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuMemsetD8_v2(address + c.offset, c.value, c.bytes),
              CUDA_SUCCESS);
    std::vector<unsigned char> got(8 * kMiB);
    ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(got.data(), address, got.size()),
              CUDA_SUCCESS);
    std::vector<unsigned char> want(8 * kMiB, 0xee);
    std::fill_n(want.begin() + static_cast<ptrdiff_t>(c.offset), c.bytes,
                c.value);
    EXPECT_TRUE(got == want) << c.name;
  }
}

CONFORMANCE_TEST(Memory, MisalignedWordFillIsRefused) {
  const Session gpu;
  EXPECT_EQ(Cuda().cuMemsetD32_v2(Allocate(64) + 2, 1, 1),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Memory, PitchHoldsTheRow) {
  const Session gpu;
  CUdeviceptr address = 0;
  size_t pitch = 0;
  ASSERT_EQ(Cuda().cuMemAllocPitch_v2(&address, &pitch, 1000, 64, 4),
            CUDA_SUCCESS);
  EXPECT_GE(pitch, 1000u);
  EXPECT_EQ(Cuda().cuMemsetD8_v2(address, 1, pitch * 64), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fineserve::conformance
