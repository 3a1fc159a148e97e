#include "tools/lab/device/virtual_memory/address_space.h"

#include <gtest/gtest.h>

#include "tools/lab/device/machine/test_machine.h"
#include "tools/lab/device/virtual_memory/device_work.h"

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kUnit = kGranularity;
constexpr auto kReadOnly = driver::CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr auto kReadWrite = driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

class AddressSpaceTest : public ::testing::Test {
 protected:
  CUdeviceptr Reserve(uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(space_.Reserve(bytes, 0, 0, &address), CUDA_SUCCESS);
    return address;
  }
  std::shared_ptr<const MemoryObject> NewObject(uint64_t bytes) {
    auto object = std::make_shared<MemoryObject>();
    object->handle = 1;  // the program's, not the driver's own
    EXPECT_EQ(memory_->Allocate(bytes, &object->allocation), CUDA_SUCCESS);
    return object;
  }
  CUresult Resolve(CUdeviceptr address, uint64_t bytes, int device = 0) {
    std::vector<Segment> segments;
    return space_.Resolve(device, address, bytes, kReadWrite, &segments);
  }

  TestMachine machine_;
  std::unique_ptr<PhysicalMemory> memory_ = machine_.Open(64 * kUnit);
  AddressSpace space_;
};

TEST_F(AddressSpaceTest, RangeMayCrossMappingsButNoHole) {
  const CUdeviceptr range = Reserve(4 * kUnit);
  for (const uint64_t at : {0, 1, 3}) {
    ASSERT_EQ(space_.Map(range + at * kUnit, kUnit, NewObject(kUnit)),
              CUDA_SUCCESS);
    ASSERT_EQ(space_.SetAccess(range + at * kUnit, kUnit, 0, kReadWrite),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(Resolve(range + kUnit / 2, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(Resolve(range + kUnit, kUnit + 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Resolve(range + 3 * kUnit, kUnit + 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Resolve(range - 1, 2), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(AddressSpaceTest, AccessIsPerDevice) {
  const CUdeviceptr range = Reserve(kUnit);
  ASSERT_EQ(space_.Map(range, kUnit, NewObject(kUnit)), CUDA_SUCCESS);
  ASSERT_EQ(space_.SetAccess(range, kUnit, 1, kReadWrite), CUDA_SUCCESS);
  ASSERT_EQ(space_.SetAccess(range, kUnit, 0, kReadOnly), CUDA_SUCCESS);
  EXPECT_EQ(Resolve(range, kUnit, 1), CUDA_SUCCESS);
  EXPECT_EQ(Resolve(range, kUnit, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(AddressSpaceTest, MixedAccessIsProtectedPieceByPiece) {
  const CUdeviceptr range = Reserve(2 * kUnit);
  for (const uint64_t at : {0, 1}) {
    ASSERT_EQ(space_.Map(range + at * kUnit, kUnit, NewObject(kUnit)),
              CUDA_SUCCESS);
  }
  ASSERT_EQ(space_.SetAccess(range, kUnit, 1, kReadWrite), CUDA_SUCCESS);
  ASSERT_EQ(space_.SetAccess(range, 2 * kUnit, 0, kReadOnly), CUDA_SUCCESS);
  const AddressSpace::HostWindow window(space_);
  *reinterpret_cast<volatile char*>(range) = 1;  // or else a SIGSEGV
  EXPECT_EQ(*reinterpret_cast<volatile char*>(range + kUnit), 0);
}

TEST_F(AddressSpaceTest, MappingMustFitOneReservation) {
  const CUdeviceptr range = Reserve(2 * kUnit);
  ASSERT_EQ(space_.Free(range, 2 * kUnit), CUDA_SUCCESS);
  CUdeviceptr low = 0, high = 0;
  ASSERT_EQ(space_.Reserve(kUnit, 0, range, &low), CUDA_SUCCESS);
  ASSERT_EQ(space_.Reserve(kUnit, 0, range + kUnit, &high), CUDA_SUCCESS);
  if (low != range || high != range + kUnit) GTEST_SKIP() << "hints refused";
  EXPECT_EQ(space_.Map(range, 2 * kUnit, NewObject(2 * kUnit)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AddressSpaceTest, OverlapFromEitherSideIsAlreadyMapped) {
  const CUdeviceptr range = Reserve(4 * kUnit);
  ASSERT_EQ(space_.Map(range + kUnit, kUnit, NewObject(kUnit)), CUDA_SUCCESS);
  EXPECT_EQ(space_.Map(range, 2 * kUnit, NewObject(2 * kUnit)),
            CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(space_.Map(range + kUnit, 2 * kUnit, NewObject(2 * kUnit)),
            CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(space_.Map(range + 2 * kUnit, 2 * kUnit, NewObject(2 * kUnit)),
            CUDA_SUCCESS);
}

TEST_F(AddressSpaceTest, UnmappedMemoryStaysUntilItsUserIsDone) {
  const CUdeviceptr range = Reserve(kUnit);
  ASSERT_EQ(space_.Map(range, kUnit, NewObject(kUnit)), CUDA_SUCCESS);
  ASSERT_EQ(space_.SetAccess(range, kUnit, 0, kReadWrite), CUDA_SUCCESS);
  std::vector<Segment> in_flight;
  ASSERT_EQ(space_.Resolve(0, range, kUnit, kReadWrite, &in_flight),
            CUDA_SUCCESS);
  ASSERT_EQ(space_.Unmap(range, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(memory_->UsedBytes(), kUnit);
  in_flight.clear();
  EXPECT_EQ(memory_->UsedBytes(), 0u);
}

TEST_F(AddressSpaceTest, DeviceWorkReachesTheMappedBytes) {
  const CUdeviceptr range = Reserve(2 * kUnit);
  for (const uint64_t at : {0, 1}) {
    ASSERT_EQ(space_.Map(range + at * kUnit, kUnit, NewObject(kUnit)),
              CUDA_SUCCESS);
  }
  ASSERT_EQ(space_.SetAccess(range, 2 * kUnit, 0, kReadWrite), CUDA_SUCCESS);
  const CUdeviceptr seam = range + kUnit - 4;
  ASSERT_EQ(Fill(space_, 0, seam, {0x01020304, 4}, 8), CUDA_SUCCESS);
  uint64_t got = 0;
  ASSERT_EQ(CopyOut(space_, 0, &got, seam, 8), CUDA_SUCCESS);
  EXPECT_EQ(got, 0x0102030401020304u);
  const AddressSpace::HostWindow window(space_);
  EXPECT_EQ(*reinterpret_cast<volatile uint32_t*>(seam), 0x01020304u);
}

}  // namespace
}  // namespace fineserve::emucuda
