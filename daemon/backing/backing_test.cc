// What every backing must do, on each of the two.
#include "daemon/backing/backing.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/backing/cuda_backing.h"
#include "daemon/backing/sim_backing.h"

namespace fineserve::backing {
namespace {

using slab::SlabId;

constexpr slab::PoolGeometry kGeometry = {2 << 20, 2, 4};
constexpr uint32_t kPresent = 3;

// An emulated machine for this process: the driver reads its place once.
class Machine : public ::testing::Environment {
 public:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("EMUCUDA_DIR", folder_.c_str(), 1);
    setenv("EMUCUDA_MEMORY", "64MiB", 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

 private:
  std::string folder_ = "/dev/shm/fineserve-backing-XXXXXX";
};
[[maybe_unused]] const auto* const kMachine =
    ::testing::AddGlobalTestEnvironment(new Machine);

class BackingTest : public ::testing::TestWithParam<const char*> {
 protected:
  BackingTest()
      : backing_(std::string(GetParam()) == "Sim" ? MakeSim() : MakeCuda()) {}

  static std::unique_ptr<Backing> MakeSim() {
    return std::make_unique<SimBacking>(
        *SimBacking::Create(kGeometry, kPresent));
  }
  static std::unique_ptr<Backing> MakeCuda() {
    const DeviceChoice choice = {"emulated", FINESERVE_EMULATED_FOLDER};
    const auto driver = *driver::Driver::Load(choice.DriverLibrary());
    const Device device = *FindDevice(driver, choice);
    return *CudaBacking::Create(driver, device, kGeometry,
                                slab::FirstSlabs(kPresent),
                                Nvml::Load(choice.NvmlLibrary(), device.uuid));
  }

  // The fills that complete, in order of slab; waits for `count`.
  std::vector<SlabId> Zeroed(size_t count) {
    std::vector<SlabId> all;
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (all.size() < count && absl::Now() < deadline) {
      const auto done = backing_->TakeZeroed();
      EXPECT_TRUE(done.ok()) << done.status();
      all.insert(all.end(), done->begin(), done->end());
      usleep(1000);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  const std::unique_ptr<Backing> backing_;
};

TEST_P(BackingTest, EachStartedFillCompletesOnce) {
  ASSERT_TRUE(backing_->StartZero(SlabId{2}).ok());
  ASSERT_TRUE(backing_->StartZero(SlabId{0}).ok());
  EXPECT_EQ(Zeroed(2), (std::vector<SlabId>{SlabId{0}, SlabId{2}}));
  EXPECT_TRUE(backing_->TakeZeroed()->empty());
}

TEST_P(BackingTest, EveryGranuleCanBeExportedAgainAndAgain) {
  for (uint32_t i = 0; i < kPresent * kGeometry.granules_per_slab; ++i) {
    for (int again = 0; again < 2; ++again) {
      const auto granule = backing_->Export(i);
      ASSERT_TRUE(granule.ok()) << granule.status();
      EXPECT_TRUE(granule->valid());
    }
  }
}

TEST_P(BackingTest, SlabComesAndGoesWithItsGranules) {
  for (int again = 0; again < 3; ++again) {
    ASSERT_TRUE(backing_->CreateSlab(SlabId{3}).ok());
    ASSERT_TRUE(backing_->StartZero(SlabId{3}).ok());
    EXPECT_EQ(Zeroed(1), (std::vector<SlabId>{SlabId{3}}));
    EXPECT_TRUE(backing_->Export(7).ok());
    backing_->DestroySlab(SlabId{3});
  }
}

TEST_P(BackingTest, ListOfDeviceProcessesIsThere) {
  EXPECT_TRUE(backing_->DevicePids().ok()) << backing_->DevicePids().status();
}

INSTANTIATE_TEST_SUITE_P(Every, BackingTest, ::testing::Values("Sim", "Cuda"),
                         [](const auto& param) { return param.param; });

TEST(CudaBackingTest, FillZeroesItsSlabAndNoOther) {
  const DeviceChoice choice = {"emulated", FINESERVE_EMULATED_FOLDER};
  const auto driver = *driver::Driver::Load(choice.DriverLibrary());
  const Device device = *FindDevice(driver, choice);
  const auto backing = *CudaBacking::Create(
      driver, device, kGeometry, slab::FirstSlabs(kPresent),
      absl::UnavailableError("not needed"));
  // An engine's view of granules 1 (slab 0) and 2 (slab 1).
  const auto range =
      *driver::Reservation::Create(driver, 2 * kGeometry.granule_bytes);
  std::vector<driver::Mapping> mappings;
  for (uint32_t i = 0; i < 2; ++i) {
    const auto fd = *backing->Export(1 + i);
    const auto granule =
        *driver::Granule::Import(driver, fd.get(), kGeometry.granule_bytes);
    mappings.push_back(*driver::Mapping::Create(
        driver, range.address() + i * kGeometry.granule_bytes, granule));
  }
  ASSERT_TRUE(driver::AllowReadWrite(driver, device.ordinal, range.address(),
                                     range.bytes())
                  .ok());
  const driver::EntryPoints& call = driver.call();
  ASSERT_EQ(call.cuMemsetD8_v2(range.address(), 9, range.bytes()),
            driver::CUDA_SUCCESS);
  ASSERT_EQ(call.cuCtxSynchronize(), driver::CUDA_SUCCESS);
  ASSERT_TRUE(backing->StartZero(SlabId{0}).ok());
  ASSERT_EQ(call.cuCtxSynchronize(), driver::CUDA_SUCCESS);
  unsigned char bytes[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_EQ(call.cuMemcpyDtoH_v2(
                  &bytes[i],
                  range.address() + (i + 1) * kGeometry.granule_bytes - 1, 1),
              driver::CUDA_SUCCESS);
  }
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[1], 9);
  mappings.clear();  // before the range
}

}  // namespace
}  // namespace fineserve::backing
