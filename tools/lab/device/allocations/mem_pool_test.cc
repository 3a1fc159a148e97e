#include "tools/lab/device/allocations/mem_pool.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>

#include "tools/lab/device/machine/test_machine.h"
#include "tools/lab/device/stream/context.h"

namespace fineserve::emucuda {
namespace {

driver::CUmemPoolProps Properties() {
  driver::CUmemPoolProps props = {};
  props.allocType = driver::CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {driver::CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return props;
}

class MemPoolTest : public ::testing::Test {
 protected:
  CUdeviceptr Allocate(uint64_t bytes, const std::shared_ptr<Stream>& stream) {
    CUdeviceptr address = 0;
    EXPECT_EQ(pool_.Allocate(bytes, *stream, &address), CUDA_SUCCESS);
    return address;
  }
  // Returns a place that the stream never reaches: its next operation, which no
  // test submits.
  static Dependency Never(const std::shared_ptr<Stream>& stream) {
    Dependency place = stream->Tail();
    ++place.position;
    return place;
  }
  uint64_t Attribute(driver::CUmemPool_attribute attribute) const {
    uint64_t value = 0;
    EXPECT_EQ(pool_.GetAttribute(attribute, &value), CUDA_SUCCESS);
    return value;
  }
  uint64_t Reserved() const {
    return Attribute(driver::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  }

  TestMachine machine_;
  std::unique_ptr<PhysicalMemory> memory_ = machine_.Open(512 * kGranularity);
  AddressSpace space_;
  Context context_{0};
  std::shared_ptr<Stream> first_ = context_.CreateStream(false);
  std::shared_ptr<Stream> second_ = context_.CreateStream(false);
  MemPool pool_{space_, *memory_, Properties(), false};
};

TEST_F(MemPoolTest, SmallAllocationsShareAChunk) {
  for (int i = 0; i < 100; ++i) Allocate(1000, first_);
  EXPECT_EQ(Reserved(), kGranularity);
  EXPECT_EQ(memory_->UsedBytes(), kGranularity);
}

TEST_F(MemPoolTest, NeighboursJoinOnceTheirStreamsGotThere) {
  const CUdeviceptr low = Allocate(kGranularity / 2, first_);
  const CUdeviceptr high = Allocate(kGranularity / 2, first_);
  ASSERT_TRUE(pool_.Free(low, first_->Tail()));
  ASSERT_TRUE(pool_.Free(high, second_->Tail()));
  pool_.Trim(0);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(MemPoolTest, TrimKeepsWhatAStreamHasNotReached) {
  const CUdeviceptr address = Allocate(kGranularity, first_);
  ASSERT_TRUE(pool_.Free(address, Never(first_)));
  pool_.Trim(0);
  EXPECT_EQ(Reserved(), kGranularity);
  EXPECT_FALSE(pool_.Empty());
}

TEST_F(MemPoolTest, TrimNeverGoesBelowWhatIsToBeKept) {
  const CUdeviceptr address = Allocate(4 * kGranularity, first_);
  ASSERT_TRUE(pool_.Free(address, {}));
  pool_.Trim(kGranularity);
  EXPECT_EQ(Reserved(), 4 * kGranularity);
}

TEST_F(MemPoolTest, OnlyStartsOfLiveAllocationsAreFreed) {
  const CUdeviceptr address = Allocate(4096, first_);
  EXPECT_FALSE(pool_.Free(address + 512, {}));
  EXPECT_FALSE(pool_.Free(0x1000, {}));
  EXPECT_TRUE(pool_.Free(address, {}));
  EXPECT_FALSE(pool_.Free(address, {}));
}

TEST_F(MemPoolTest, OpportunisticReuseCanBeForbidden) {
  const int no = 0;
  ASSERT_EQ(pool_.SetAttribute(
                driver::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &no),
            CUDA_SUCCESS);
  const CUdeviceptr address = Allocate(kGranularity, first_);
  ASSERT_TRUE(pool_.Free(address, first_->Tail()));
  EXPECT_NE(Allocate(kGranularity, second_), address);
}

// No allocation gets bytes that are live, or that were freed behind a place
// that another stream has not reached.
TEST_F(MemPoolTest, RandomTrafficNeverOverlaps) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  struct Taken {
    uint64_t bytes;
    const Stream* freed_by;  // null: live
  };
  std::map<CUdeviceptr, Taken> taken;
  for (int step = 0; step < 5000; ++step) {
    const auto& stream = random() % 2 == 0 ? first_ : second_;
    if (random() % 2 == 0 || taken.empty()) {
      const uint64_t bytes =
          1 + random() % (random() % 8 == 0 ? 3 << 20 : 9000);
      CUdeviceptr address = 0;
      if (pool_.Allocate(bytes, *stream, &address)) continue;
      // The allocation may have taken over bytes that its own stream freed.
      for (auto next = taken.begin(); next != taken.end();) {
        const auto old = next++;
        if (old->first + old->second.bytes <= address ||
            address + bytes <= old->first) {
          continue;
        }
        ASSERT_EQ(old->second.freed_by, stream.get());
        taken.erase(old);
      }
      taken[address] = {bytes, nullptr};
    } else {
      const auto victim = std::next(
          taken.begin(), static_cast<ptrdiff_t>(random() % taken.size()));
      const bool live = victim->second.freed_by == nullptr;
      ASSERT_EQ(pool_.Free(victim->first, Never(stream)), live);
      if (live) victim->second.freed_by = stream.get();
    }
  }
}

}  // namespace
}  // namespace fineserve::emucuda
