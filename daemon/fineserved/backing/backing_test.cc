// Tests that every backing must pass, run on both backings.
#include "daemon/fineserved/backing/backing.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/fineserved/backing/backing_fixture.h"
#include "daemon/fineserved/backing/cuda_backing.h"
#include "daemon/fineserved/backing/sim_backing.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::backing {
namespace {

using slab::SlabId;

constexpr slab::PoolGeometry kGeometry = {2 << 20, 2, 4};
constexpr uint32_t kPresent = 3;

[[maybe_unused]] const auto* const kMachine =
    ::testing::AddGlobalTestEnvironment(new EmulatedMachine);

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

  // Waits until `count` fills complete, and returns their slabs in order.
  std::vector<SlabId> Zeroed(size_t count) {
    std::vector<SlabId> all;
    process::Eventually([&] {
      const auto done = backing_->TakeZeroed();
      EXPECT_TRUE(done.ok()) << done.status();
      if (!done.ok()) return true;
      all.insert(all.end(), done->begin(), done->end());
      return all.size() >= count;
    });
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

// A container's access to device nodes may be taken away while it runs.
TEST_P(BackingTest, GranulesAreExportedWhereNoDeviceNodeCanBeOpened) {
  const std::filesystem::path closed =
      std::filesystem::path(getenv("EMUCUDA_DIR")) / "no-new-opens";
  std::ofstream(closed).close();
  EXPECT_TRUE(backing_->Export(1).ok()) << backing_->Export(1).status();
  std::filesystem::remove(closed);
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
  EXPECT_TRUE(backing_->DevicePids({}).ok())
      << backing_->DevicePids({}).status();
}

// A pool whose descriptors are kept, as fineserved's parent does.
class KeptPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<CudaBacking> Make(std::vector<SlabId> present,
                                    CudaBacking::Granules kept = {}) {
    auto made = TryMake(std::move(present), std::move(kept));
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  absl::StatusOr<std::unique_ptr<CudaBacking>> TryMake(
      std::vector<SlabId> present, CudaBacking::Granules kept) {
    const DeviceChoice choice = {"emulated", FINESERVE_EMULATED_FOLDER};
    const auto driver = *driver::Driver::Load(choice.DriverLibrary());
    const Device device = *FindDevice(driver, choice);
    return CudaBacking::Create(
        driver, device, kGeometry, present,
        Nvml::Load(choice.NvmlLibrary(), device.uuid), std::move(kept),
        CudaBacking::Keeper{
            [this](uint32_t granule, int descriptor) {
              kept_[granule] = Copy(descriptor);
              return absl::OkStatus();
            },
            [this](uint32_t granule) { kept_.erase(granule); }});
  }
  static driver::Descriptor Copy(int descriptor) {
    return driver::Descriptor(dup(descriptor));
  }
  // Granules that the next daemon is given.
  CudaBacking::Granules Given() const {
    CudaBacking::Granules given;
    for (const auto& [granule, descriptor] : kept_) {
      given.emplace(granule, Copy(descriptor.get()));
    }
    return given;
  }
  static void FillAndWait(CudaBacking* backing, SlabId slab) {
    ASSERT_TRUE(backing->StartZero(slab).ok());
    size_t done = 0;
    process::Eventually(
        [&] { return (done = backing->TakeZeroed()->size()) > 0; });
    ASSERT_EQ(done, 1u);
  }
  // Maps a granule into this process, and returns the address of its first
  // word.
  static uint32_t* Map(const driver::Descriptor& granule) {
    void* at =
        mmap(nullptr, kGeometry.granule_bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED, granule.get(), lseek(granule.get(), 0, SEEK_CUR));
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<uint32_t*>(at);
  }

  std::map<uint32_t, driver::Descriptor> kept_;
};

TEST_F(KeptPoolTest, MemoryOutlivesItsMakerAndTheNextOneFillsAndExportsIt) {
  auto first = Make({SlabId{0}, SlabId{2}});
  EXPECT_EQ(kept_.size(), 4u);  // granules 0, 1, 4 and 5
  uint32_t* word = Map(kept_[4]);
  *word = 11;
  first.reset();
  auto next = Make({SlabId{0}, SlabId{2}}, Given());
  const auto exported = next->Export(4);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(*Map(*exported), 11u) << "nothing was zeroed";
  FillAndWait(next.get(), SlabId{2});
  EXPECT_EQ(*word, 0u);
  FillAndWait(next.get(), SlabId{2});
  munmap(word, kGeometry.granule_bytes);
}

TEST_F(KeptPoolTest, SlabThatHasLeftThePoolIsForgottenAndOneThatJoinsIsKept) {
  Make({SlabId{0}, SlabId{2}}).reset();
  auto next = Make({SlabId{0}}, Given());
  EXPECT_EQ(kept_.size(), 2u);
  ASSERT_TRUE(next->CreateSlab(SlabId{3}).ok());
  EXPECT_EQ(kept_.count(6) + kept_.count(7), 2u);
  next->DestroySlab(SlabId{0});
  EXPECT_EQ(kept_.size(), 2u);
}

TEST_F(KeptPoolTest, PoolOfWhichAGranuleIsMissingIsNotTakenOver) {
  Make({SlabId{0}, SlabId{2}}).reset();
  kept_.erase(5);
  const auto next = TryMake({SlabId{0}, SlabId{2}}, Given());
  EXPECT_TRUE(absl::IsDataLoss(next.status())) << next.status();
  EXPECT_EQ(kept_.size(), 3u) << "its memory stays as it is";
}

INSTANTIATE_TEST_SUITE_P(Every, BackingTest, ::testing::Values("Sim", "Cuda"),
                         [](const auto& param) { return param.param; });

TEST(NodeTroubleTest, MissingAndClosedNodesAreNamedWithTheCure) {
  std::string folder = "/tmp/fineserve-nodes-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto make = [&](const char* name) {
    std::ofstream(folder + "/" + name).close();
  };
  EXPECT_EQ(
      NodeTrouble(folder),
      folder + "/nvidiactl is missing: run nvidia-modprobe -u -c 0 as root");
  make("nvidiactl");
  EXPECT_NE(NodeTrouble(folder).find("/nvidia-uvm is missing"),
            std::string::npos);
  make("nvidia-uvm");
  EXPECT_NE(NodeTrouble(folder).find("/nvidia0 is missing"), std::string::npos);
  make("nvidia2");
  EXPECT_EQ(NodeTrouble(folder), "");
  std::filesystem::remove_all(folder);
}

// A control group that may not open /dev/null, for a process that the test
// forks.
class FilteredGroup {
 public:
  FilteredGroup() {
    std::error_code error;
    made_ = std::filesystem::create_directory(folder_, error) &&
            Write("devices.deny", "c 1:3 rwm");
  }
  ~FilteredGroup() {
    std::error_code error;
    if (made_) std::filesystem::remove(folder_, error);
  }
  bool made() const { return made_; }
  bool Enter() const { return Write("cgroup.procs", "0"); }

 private:
  bool Write(const char* file, const char* text) const {
    std::ofstream to(folder_ + "/" + file);
    to << text << std::flush;
    return to.good();
  }

  const std::string folder_ =
      "/sys/fs/cgroup/devices/fineserve-test-" + std::to_string(getpid());
  bool made_ = false;
};

TEST(NodeTroubleTest, FilterOfAControlGroupIsNamed) {
  const FilteredGroup group;
  if (!group.made()) {
    GTEST_SKIP() << "needs root and the devices controller of cgroup v1";
  }
  const process::TemporaryFolder folder;
  for (const char* name : {"nvidiactl", "nvidia-uvm", "nvidia0"}) {
    ASSERT_EQ(mknod((folder.path() + "/" + name).c_str(), S_IFCHR | 0666,
                    makedev(1, 3)),
              0);
  }
  EXPECT_EQ(NodeTrouble(folder.path()), "");
  process::ChildProcess child([&] {
    if (!group.Enter()) return 2;
    const std::string why = NodeTrouble(folder.path());
    return why.find("kept from this control group") != std::string::npos ? 0
                                                                         : 1;
  });
  EXPECT_EQ(child.Wait(), 0);
}

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
