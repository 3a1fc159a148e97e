// Tests a carrier on one emulated device, for memory of another device.
#include "daemon/fineserved/store/carrier.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "daemon/fineserved/backing/find_device.h"
#include "kernels/driver/driver_handles.h"

namespace fineserve::store {
namespace {

using driver::CUDA_SUCCESS;
using driver::Granule;
using driver::Mapping;
using driver::Reservation;

constexpr uint64_t kCopyBytes = 4 << 20, kPart = 1 << 20;

// Set before the program's first driver call, in a machine that store_test.cc
// makes.
[[maybe_unused]] const int kTwoDevices = setenv("EMUCUDA_DEVICES", "2", 1);

class CarrierTest : public ::testing::Test {
 protected:
  CarrierTest() {
    // Writes a copy whose parts consist of different letters.
    EXPECT_TRUE(file_.Append(kCopyBytes).ok());
    for (uint64_t i = 0; i < 4; ++i) {
      const std::string part(kPart, static_cast<char>('a' + i));
      EXPECT_EQ(pwrite(file_.descriptor(), part.data(), kPart,
                       static_cast<off_t>(i * kPart)),
                static_cast<ssize_t>(kPart));
    }
    EXPECT_TRUE(
        driver::AllowReadWrite(driver_, 0, range_.address(), kCopyBytes).ok());
    EXPECT_EQ(driver_.call().cuMemsetD8_v2(range_.address(), '.', kCopyBytes),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_.call().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  Transfer Whole() const {
    return {std::make_shared<const driver::Descriptor>(*file_.Claim({})),
            0,
            {0, kCopyBytes, *memory_.Export()}};
  }
  absl::Status Carry(Carrier* carrier, const Transfer& whole, uint64_t offset,
                     uint64_t bytes) {
    peer_.MakeCurrent();
    const absl::Status s = carrier->Carry(whole, offset, bytes, nullptr);
    context_.MakeCurrent();
    return s;
  }
  // Returns a letter for each part of the memory, '!' for a part with several
  // letters.
  std::string Letters() const {
    std::string letters;
    for (uint64_t i = 0; i < 4; ++i) {
      std::string part(kPart, '?');
      EXPECT_EQ(driver_.call().cuMemcpyDtoH_v2(
                    part.data(), range_.address() + i * kPart, kPart),
                CUDA_SUCCESS);
      letters += part == std::string(kPart, part[0]) ? part[0] : '!';
    }
    return letters;
  }

  const backing::DeviceChoice choice_ = {"emulated", FINESERVE_EMULATED_FOLDER};
  const driver::Driver driver_ = *driver::Driver::Load(choice_.DriverLibrary());
  const driver::Context peer_ = *driver::Context::Retain(driver_, 1);
  const driver::Context context_ = *driver::Context::Retain(driver_, 0);
  const Granule memory_ = *Granule::Create(driver_, 0, kCopyBytes);
  const Reservation range_ = *Reservation::Create(driver_, kCopyBytes);
  const Mapping mapping_ = *Mapping::Create(driver_, range_.address(), memory_);
  StoreFile file_ = *StoreFile::Create();
  Carrier carrier_{driver_, 1};
};

TEST_F(CarrierTest, CopiesPartsToTheirPlacesOnAnotherGpu) {
  EXPECT_TRUE(Carry(&carrier_, Whole(), kPart, 2 * kPart).ok());
  EXPECT_EQ(Letters(), ".bc.");
  EXPECT_TRUE(Carry(&carrier_, Whole(), 3 * kPart, kPart).ok());
  EXPECT_TRUE(Carry(&carrier_, Whole(), 0, kPart).ok());
  EXPECT_EQ(Letters(), "abcd");
}

TEST_F(CarrierTest, CopyThatWasCarriedStaysRegisteredWhileItIsNeeded) {
  EXPECT_TRUE(carrier_.is_empty());
  ASSERT_TRUE(Carry(&carrier_, Whole(), 0, kPart).ok());
  peer_.MakeCurrent();
  EXPECT_FALSE(carrier_.LetGoUnneeded());
  EXPECT_FALSE(carrier_.is_empty());
  file_.LetGo({0, kCopyBytes});
  EXPECT_EQ(file_.memory_bytes(), 0u);
  EXPECT_TRUE(carrier_.LetGoUnneeded());
  EXPECT_TRUE(carrier_.is_empty());
  EXPECT_EQ(file_.memory_bytes(), 0u);
  EXPECT_TRUE(absl::IsNotFound(Carry(&carrier_, Whole(), 0, kPart)));
}

TEST_F(CarrierTest, RefusesWhatIsNoneOfItsWork) {
  EXPECT_TRUE(
      absl::IsInvalidArgument(Carry(&carrier_, Whole(), kCopyBytes, kPart)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Carry(&carrier_, Whole(), kPart, kCopyBytes)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Carry(&carrier_, Whole(), UINT64_MAX - kPart, 2 * kPart)));
  EXPECT_TRUE(absl::IsInvalidArgument(Carry(&carrier_, Whole(), 0, 0)));
  Transfer other_file = Whole();
  other_file.file = std::make_shared<const driver::Descriptor>(
      memfd_create("x", MFD_ALLOW_SEALING));
  EXPECT_TRUE(absl::IsInvalidArgument(Carry(&carrier_, other_file, 0, kPart)));
  Transfer behind = Whole();
  behind.file_offset = kPart;
  EXPECT_TRUE(absl::IsNotFound(Carry(&carrier_, behind, 0, kPart)));
  Transfer no_memory = Whole();
  no_memory.memory.memory.Reset(memfd_create("x", 0));
  EXPECT_FALSE(Carry(&carrier_, no_memory, 0, kPart).ok());
  // Its own GPU's.
  Carrier own(driver_, 0);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(own.Carry(Whole(), 0, kPart, nullptr)));
  EXPECT_EQ(Letters(), "....");
}

}  // namespace
}  // namespace fineserve::store
