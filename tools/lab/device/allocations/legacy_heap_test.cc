#include "tools/lab/device/allocations/legacy_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tools/lab/device/machine/test_machine.h"
#include "tools/lab/device/stream/context.h"

namespace fineserve::emucuda {
namespace {

class LegacyHeapTest : public ::testing::Test {
 protected:
  ~LegacyHeapTest() override { heap_.FreeAll(context_); }

  CUdeviceptr Allocate(uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(
        heap_.Allocate(context_, *memory_, bytes, BlockKind::kDevice, &address),
        CUDA_SUCCESS);
    return address;
  }

  TestMachine machine_;
  std::unique_ptr<PhysicalMemory> memory_ = machine_.Open(512 * kGranularity);
  AddressSpace space_;
  LegacyHeap heap_{space_};
  Context context_{0};
};

TEST_F(LegacyHeapTest, SmallAllocationsShareAChunk) {
  for (int i = 0; i < 100; ++i) Allocate(1000);
  EXPECT_EQ(memory_->UsedBytes(), kGranularity);
}

TEST_F(LegacyHeapTest, LastFreeReturnsTheChunk) {
  const CUdeviceptr first = Allocate(1000), second = Allocate(1000);
  EXPECT_EQ(heap_.Free(first), CUDA_SUCCESS);
  EXPECT_EQ(memory_->UsedBytes(), kGranularity);
  EXPECT_EQ(heap_.Free(second), CUDA_SUCCESS);
  EXPECT_EQ(memory_->UsedBytes(), 0u);
}

TEST_F(LegacyHeapTest, OnlyStartsOfLiveAllocationsAreFreed) {
  const CUdeviceptr address = Allocate(4096);
  EXPECT_EQ(heap_.Free(address + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(heap_.Free(0x1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(heap_.Free(address), CUDA_SUCCESS);
  EXPECT_EQ(heap_.Free(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LegacyHeapTest, OtherContextsKeepTheirs) {
  const Context other(0);
  CUdeviceptr theirs = 0;
  ASSERT_EQ(heap_.Allocate(other, *memory_, 100, BlockKind::kDevice, &theirs),
            CUDA_SUCCESS);
  Allocate(100);
  heap_.FreeAll(context_);
  EXPECT_EQ(memory_->UsedBytes(), kGranularity);
  EXPECT_EQ(heap_.Free(theirs), CUDA_SUCCESS);
}

TEST_F(LegacyHeapTest, TooMuchIsOutOfMemory) {
  CUdeviceptr address = 0;
  EXPECT_EQ(heap_.Allocate(context_, *memory_, ~uint64_t{0}, BlockKind::kDevice,
                           &address),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory_->UsedBytes(), 0u);
}

TEST_F(LegacyHeapTest, RandomTrafficNeverOverlaps) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::map<CUdeviceptr, uint64_t> live;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0 || live.empty()) {
      const uint64_t bytes =
          1 + random() % (random() % 8 == 0 ? 3 << 20 : 9000);
      CUdeviceptr address = 0;
      if (heap_.Allocate(context_, *memory_, bytes, BlockKind::kDevice,
                         &address))
        continue;
      const auto [place, fresh] = live.emplace(address, bytes);
      ASSERT_TRUE(fresh);
      ASSERT_EQ(address % 512, 0u);
      const auto next = std::next(place);
      ASSERT_TRUE(next == live.end() || address + bytes <= next->first);
      ASSERT_TRUE(place == live.begin() ||
                  std::prev(place)->first + std::prev(place)->second <=
                      address);
    } else {
      const auto victim = std::next(
          live.begin(), static_cast<ptrdiff_t>(random() % live.size()));
      ASSERT_EQ(heap_.Free(victim->first), CUDA_SUCCESS);
      live.erase(victim);
    }
  }
}

}  // namespace
}  // namespace fineserve::emucuda
