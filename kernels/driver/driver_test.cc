#include "kernels/driver/driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "kernels/driver/driver_handles.h"
#include "kernels/driver/status.h"

namespace fineserve::driver {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGranuleBytes = 2 << 20;

// Tests on the emulated driver, with a separate machine folder.
class DriverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = "/dev/shm/fineserve-driver-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("EMUCUDA_DIR", folder_.c_str(), 1);
    setenv("EMUCUDA_MEMORY", "64MiB", 1);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static Driver Loaded() { return *Driver::Load(FINESERVE_EMULATED_LIBCUDA); }
  static size_t FreeBytes(const Driver& driver) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    EXPECT_EQ(driver.call().cuMemGetInfo_v2(&free_bytes, &total_bytes),
              CUDA_SUCCESS);
    return free_bytes;
  }

  static std::string folder_;
};
std::string DriverTest::folder_;

TEST_F(DriverTest, LoadedDriverKnowsItsVersion) {
  EXPECT_EQ(Loaded().version(), 13000);
}

TEST_F(DriverTest, MissingLibraryIsNotFound) {
  const auto driver = Driver::Load("libcuda-that-is-nowhere.so.1");
  EXPECT_TRUE(absl::IsNotFound(driver.status()));
}

TEST_F(DriverTest, LibraryThatIsNoDriverNamesWhatItLacks) {
  const auto driver = Driver::Load("libc.so.6");
  EXPECT_TRUE(absl::IsFailedPrecondition(driver.status()));
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("cuInit"));
}

TEST_F(DriverTest, StatusUsesTheDriversErrorNames) {
  const Driver driver = Loaded();
  const absl::Status s =
      ToStatus(driver.call(), CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate(7 bytes)");
  EXPECT_TRUE(absl::IsResourceExhausted(s));
  EXPECT_THAT(std::string(s.message()),
              HasSubstr("cuMemCreate(7 bytes): CUDA_ERROR_OUT_OF_MEMORY (2)"));
}

TEST_F(DriverTest, OwnersGiveEverythingBack) {
  const Driver driver = Loaded();
  const auto context = Context::Retain(driver, 0);
  ASSERT_TRUE(context.ok()) << context.status();
  const size_t before = FreeBytes(driver);
  {
    const auto range = Reservation::Create(driver, 2 * kGranuleBytes);
    ASSERT_TRUE(range.ok());
    auto granule = Granule::Create(driver, 0, kGranuleBytes);
    ASSERT_TRUE(granule.ok());
    auto mapping = Mapping::Create(driver, range->address(), *granule);
    ASSERT_TRUE(mapping.ok());
    const Mapping moved = *std::move(mapping);
    EXPECT_EQ(FreeBytes(driver), before - kGranuleBytes);
  }
  EXPECT_EQ(FreeBytes(driver), before);
  EXPECT_EQ(release_failures(), 0u);
}

TEST_F(DriverTest, RefusedReleaseIsCounted) {
  const Driver driver = Loaded();
  const auto context = Context::Retain(driver, 0);
  const uint64_t before = release_failures();
  {
    auto granule = Granule::Create(driver, 0, kGranuleBytes);
    ASSERT_TRUE(granule.ok());
    ASSERT_EQ(driver.call().cuMemRelease(granule->handle()), CUDA_SUCCESS);
  }
  EXPECT_EQ(release_failures(), before + 1);
}

TEST_F(DriverTest, ExportedGranuleOutlivesItsHandleAndKeepsItsBytes) {
  const Driver driver = Loaded();
  const auto context = Context::Retain(driver, 0);
  const auto range = Reservation::Create(driver, 2 * kGranuleBytes);
  Descriptor exported;
  {
    const auto granule = Granule::Create(driver, 0, kGranuleBytes);
    const auto mapping = Mapping::Create(driver, range->address(), *granule);
    ASSERT_TRUE(
        AllowReadWrite(driver, 0, range->address(), kGranuleBytes).ok());
    ASSERT_EQ(driver.call().cuMemsetD8_v2(range->address(), 7, kGranuleBytes),
              CUDA_SUCCESS);
    driver.call().cuCtxSynchronize();
    exported = *granule->Export();
  }
  const auto imported = Granule::Import(driver, exported.get(), kGranuleBytes);
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto mapping = Mapping::Create(driver, range->address(), *imported);
  ASSERT_TRUE(AllowReadWrite(driver, 0, range->address(), kGranuleBytes).ok());
  char byte = 0;
  ASSERT_EQ(driver.call().cuMemcpyDtoH_v2(
                &byte, range->address() + kGranuleBytes - 1, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(byte, 7);
}

bool RdmaCapable(const Driver& driver, const Granule& granule) {
  CUmemAllocationProp prop = {};
  EXPECT_EQ(driver.call().cuMemGetAllocationPropertiesFromHandle(
                &prop, granule.handle()),
            CUDA_SUCCESS);
  return prop.allocFlags.gpuDirectRDMACapable != 0;
}

TEST_F(DriverTest, GranuleSupportsNetworkCardsWhereTheMachineDoes) {
  const Driver driver = Loaded();
  const auto context = Context::Retain(driver, 0);
  const auto capable = Granule::Create(driver, 0, kGranuleBytes);
  ASSERT_TRUE(capable.ok()) << capable.status();
  EXPECT_TRUE(RdmaCapable(driver, *capable));
  void* const library = dlopen(FINESERVE_EMULATED_LIBCUDA, RTLD_NOW);
  const auto fail = reinterpret_cast<int (*)(const char*)>(
      dlsym(library, "emucuda_set_failures"));
  fail("cuMemCreate@1=801");  // CUDA_ERROR_NOT_SUPPORTED
  const auto plain = Granule::Create(driver, 0, kGranuleBytes);
  fail("");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(RdmaCapable(driver, *plain));
}

TEST_F(DriverTest, GranuleThatDoesNotFitIsResourceExhausted) {
  const Driver driver = Loaded();
  const auto context = Context::Retain(driver, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(
      Granule::Create(driver, 0, 128 << 20).status()));
}

}  // namespace
}  // namespace fineserve::driver
