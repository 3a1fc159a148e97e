#include "shim/redirect/pointer_queries.h"

#include <gtest/gtest.h>

#include <memory>

#include "shim/testdata/fake_driver.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUpointer_attribute;
using driver::CUresult;

constexpr CUdeviceptr kBase = 0x10'0000'0000;
constexpr CUdeviceptr kMapped = 0x20'0000'0000;
constexpr size_t kAsked = (4 << 20) + 1;
constexpr size_t kReservedBytes = 8 << 20;
constexpr size_t kGranule = 2 << 20;

// A driver that sees granules.
CUresult RangeOfGranule(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  *base = address / kGranule * kGranule;
  *bytes = kGranule;
  return CUDA_SUCCESS;
}

CUresult WholeReservation(CUdeviceptr* base, size_t* bytes, CUdeviceptr) {
  *base = kMapped - kGranule;
  *bytes = 1 << 30;
  return CUDA_SUCCESS;
}

// Answers every attribute with the number of the granule.
CUresult GranuleNumber(void* value, CUpointer_attribute, CUdeviceptr address) {
  *static_cast<uint64_t*>(value) = address / kGranule;
  return CUDA_SUCCESS;
}

class PointerQueriesTest : public testing::Test {
 protected:
  PointerQueriesTest() {
    driver_.entry.cuMemGetAddressRange_v2 = &RangeOfGranule;
    driver_.entry.cuPointerGetAttribute = &GranuleNumber;
    Redirection range;
    range.base = kBase;
    range.reserved_bytes = kReservedBytes;
    range.asked_bytes = kAsked;
    range.context = reinterpret_cast<driver::CUcontext>(&driver_);
    ranges_->Insert(range);
    range.base = kMapped;
    range.asked_bytes = kReservedBytes;
    range.handle = 77;
    mappings_->Insert(range);
  }

  uint64_t Ask(CUpointer_attribute attribute, CUdeviceptr address) {
    uint64_t value = 0;
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuPointerGetAttribute(&value, attribute, address);
    };
    EXPECT_EQ(queries_.Attribute(driver_.entry, &value, attribute, address,
                                 Original(original)),
              CUDA_SUCCESS);
    return value;
  }
  CUresult AskRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemGetAddressRange_v2(base, bytes, address);
    };
    return queries_.AddressRange(driver_.entry, base, bytes, address,
                                 Original(original));
  }

  Driver driver_ = NewFakeDriver();
  std::unique_ptr<RangeTable> ranges_ = std::make_unique<RangeTable>();
  std::unique_ptr<RangeTable> mappings_ = std::make_unique<RangeTable>();
  PointerQueries queries_{ranges_.get(), mappings_.get()};
};

TEST_F(PointerQueriesTest, RangeOfAnAllocationIsItsOwnBaseAndSize) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_EQ(AskRange(&base, &bytes, kBase + 3 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(base, kBase);
  EXPECT_EQ(bytes, kAsked);
  EXPECT_EQ(AskRange(nullptr, nullptr, kBase), CUDA_SUCCESS);
}

TEST_F(PointerQueriesTest, RangeOfAMappingIsNotCutIntoGranules) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  AskRange(&base, &bytes, kMapped + kGranule + 5);
  EXPECT_EQ(base, kMapped);
  EXPECT_EQ(bytes, kReservedBytes);
  driver_.entry.cuMemGetAddressRange_v2 = &WholeReservation;
  AskRange(&base, &bytes, kMapped + kGranule + 5);
  EXPECT_EQ(base, kMapped - kGranule) << "a driver that names reservations";
  EXPECT_EQ(bytes, size_t{1} << 30);
}

TEST_F(PointerQueriesTest, OtherAddressesAreTheDriversToAnswer) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  AskRange(&base, &bytes, kBase + kReservedBytes + 1);
  EXPECT_EQ(base, kBase + kReservedBytes);
  EXPECT_EQ(bytes, kGranule);
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_RANGE_SIZE, 9 * kGranule), 9u);
}

TEST_F(PointerQueriesTest, AttributesOfAnAllocationAreThoseOfTheWhole) {
  const CUdeviceptr inside = kBase + 3 * kGranule + 1;
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), kBase);
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), kAsked);
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside), kBase);
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), kAsked);
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_CONTEXT, inside),
            reinterpret_cast<uint64_t>(&driver_));
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_BUFFER_ID, inside),
            kBase / kGranule)
      << "one number for all of it";
  EXPECT_EQ(Ask(driver::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside), 0u)
      << "it cannot be exported";
}

TEST_F(PointerQueriesTest, QueriesOfTheAddressItselfAreTheDrivers) {
  const CUdeviceptr inside = kBase + 3 * kGranule + 1;
  for (const CUpointer_attribute attribute :
       {driver::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        driver::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        driver::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL}) {
    EXPECT_EQ(Ask(attribute, inside), inside / kGranule) << attribute;
  }
}

TEST_F(PointerQueriesTest, SeveralAttributesAtOnceAgreeWithEachAlone) {
  CUpointer_attribute attributes[] = {driver::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      driver::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                      driver::CU_POINTER_ATTRIBUTE_BUFFER_ID};
  const CUdeviceptr inside = kBase + kGranule;
  uint64_t answers[3] = {};
  void* values[] = {&answers[0], &answers[1], &answers[2]};
  const auto original = [&](const driver::EntryPoints& entry) {
    for (int i = 0; i < 3; ++i) {
      entry.cuPointerGetAttribute(values[i], attributes[i], inside);
    }
    return CUDA_SUCCESS;
  };
  queries_.Attributes(driver_.entry, 3, attributes, values, inside,
                      Original(original));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answers[i], Ask(attributes[i], inside));
}

}  // namespace
}  // namespace fineserve::shim
