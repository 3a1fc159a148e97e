#include "shim/map/view_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "daemon/contract/abi/byte_size.h"
#include "shim/testdata/view_fixture.h"

namespace fineserve::shim {
namespace {

using abi::kMiB;
using abi::ViewMode;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using Fault = FakeDaemon::Fault;

constexpr uint64_t kGranule = 2 * kMiB;

struct Form {
  const char* name;
  uint32_t planes;
  uint32_t planes_per_allocation;
  uint64_t page_bytes;
  uint32_t granules_per_plane;
  uint32_t granules_per_slab;
  uint32_t slabs;
  uint64_t rest_bytes = 0;  // after the last index of each plane
};

ViewShape ShapeOf(const Form& f, ViewMode mode) {
  ViewShape s;
  s.mode = mode;
  s.planes = f.planes;
  s.planes_per_allocation = f.planes_per_allocation;
  s.page_bytes = f.page_bytes;
  s.granule_bytes = kGranule;
  s.granules_per_plane = f.granules_per_plane;
  s.plane_bytes = f.granules_per_plane * kGranule;
  s.granules_per_slab = f.granules_per_slab;
  s.slabs = f.slabs;
  s.blocks = ((f.slabs + 1) * s.plane_bytes + f.rest_bytes) / f.page_bytes;
  s.granularity = kFakeGranularity;
  s.epoch = 42;
  return s;
}

constexpr Form kForms[] = {
    {"Packed", 1, 1, 64 << 10, 2, 2, 6},
    {"OddPages", 1, 1, 33'792, 3, 3, 5},
    {"PlaneAPerTensor", 3, 1, 64 << 10, 1, 4, 5},
    {"PlanesBehindOneAnother", 4, 2, 64 << 10, 2, 9, 4, 6 * kMiB},
    {"Roomy", 2, 1, 64 << 10, 1, 2, 3, 130 * kMiB},
    {"LargeShares", 2, 2, 1 << 20, 51, 102, 2},
    {"ManySlabs", 2, 1, 64 << 10, 1, 2, 300},
};

class ViewMappingTest : public ViewFixture {
 protected:
  // Opens tensors of `shape`, with each tensor on scratch.
  void Open(const ViewShape& shape, FakeDaemon::Options options = {}) {
    options.granules_per_slab = shape.granules_per_slab;
    options.slab_count = shape.slabs;
    StartDaemon(options);
    Join();
    shape_ = shape;
    ASSERT_TRUE(view_.Open(shape));
    while (!view_.complete()) {
      Redirection tensor;
      ASSERT_EQ(
          view_.AddTensor(driver_.entry, shape.tensor_bytes(), &tensor).outcome,
          MapOutcome::kMapped);
      tensors_.push_back(tensor);
    }
  }
  // Starts over, with a new daemon and a new driver in the state `device_`.
  void Reopen(const ViewShape& shape) {
    fake_ = device_;
    tensors_.clear();
    view_.Close();
    new (&view_) ViewMapping;
    link_.AbandonInChild();
    daemon_.reset();
    new (&link_) DaemonLink(&scoreboard_, &declared_, &rules_);
    Open(shape);
  }
  void TearDown() override {
    view_.Close();
    ViewFixture::TearDown();
  }
  MapResult Activate() {
    return view_.Activate(driver_.entry, &link_,
                          [&](uint32_t v) { return v == absent_ ? 0 : v; });
  }
  CUdeviceptr Place(uint32_t p, uint32_t v) const {
    const uint32_t each = shape_.planes_per_allocation;
    return tensors_[p / each].base + p % each * shape_.stride() +
           v * shape_.plane_bytes;
  }
  // True if the pool's slab, and nothing else, is mapped at `v` of every plane.
  bool HasSlab(uint32_t v) const {
    for (uint32_t p = 0; p < shape_.planes; ++p) {
      for (uint32_t g = 0; g < shape_.granules_per_plane; ++g) {
        const auto want = kPoolHandle + (v - 1) * shape_.granules_per_slab +
                          p * shape_.granules_per_plane + g;
        const auto m = fake_.mappings.find(Place(p, v) + g * kGranule);
        if (m == fake_.mappings.end() || m->second.handle != want ||
            m->second.bytes != kGranule || !m->second.accessible) {
          return false;
        }
      }
    }
    return true;
  }
  // True if every byte at `v` of every plane is scratch that can be touched.
  bool HasScratch(uint32_t v) const {
    for (uint32_t p = 0; p < shape_.planes; ++p) {
      for (uint64_t at = 0; at < shape_.plane_bytes; at += kGranule) {
        if (!IsScratch(Place(p, v) + at)) return false;
      }
    }
    return AllAccessible();
  }
  bool HasNothing(uint32_t v) const {
    for (uint32_t p = 0; p < shape_.planes; ++p) {
      for (uint64_t at = 0; at < shape_.plane_bytes; at += kGranule) {
        if (HandleAt(Place(p, v) + at) != 0) return false;
      }
    }
    return true;
  }
  bool AllAccessible() const {
    return std::all_of(fake_.mappings.begin(), fake_.mappings.end(),
                       [](const auto& m) { return m.second.accessible; });
  }
  uint64_t ScratchBytes() const {
    uint64_t bytes = 0;
    for (const auto& [handle, one] : fake_.created) bytes += one;
    return bytes;
  }
  uint64_t LargestScratch() const {
    uint64_t bytes = 0;
    for (const auto& [handle, one] : fake_.created)
      bytes = std::max(bytes, one);
    return bytes;
  }
  void RemoveAll() {
    ASSERT_EQ(view_.UnmapAll(driver_.entry), CUDA_SUCCESS);
    for (const Redirection& tensor : tensors_) {
      ASSERT_EQ(view_.RemoveTensor(driver_.entry, tensor.base), CUDA_SUCCESS);
    }
    EXPECT_EQ(fake_.mapped_bytes, 0u);
    EXPECT_EQ(fake_.reserved_bytes, 0u);
    EXPECT_EQ(fake_.handles, 0);
    EXPECT_TRUE(fake_.created.empty());
  }

  ViewShape shape_;
  ViewMapping view_;
  std::vector<Redirection> tensors_;
  uint32_t absent_ = 0;
  FakeDriverState device_;
};

class KvViewForms : public ViewMappingTest,
                    public testing::WithParamInterface<Form> {};

TEST_P(KvViewForms, TensorsBeginOnLittleScratchAllOverAndLeaveNothing) {
  for (const ViewMode mode :
       {ViewMode::kView, ViewMode::kGuarded, ViewMode::kStrict}) {
    Reopen(ShapeOf(GetParam(), mode));
    for (const Redirection& t : tensors_) {
      EXPECT_GE(t.reserved_bytes, shape_.tensor_bytes());
      for (uint64_t at = 0; at < t.reserved_bytes; at += kGranule) {
        ASSERT_TRUE(IsScratch(t.base + at)) << at;
      }
    }
    EXPECT_TRUE(AllAccessible());
    EXPECT_LE(ScratchBytes(), 130 * kMiB);
    RemoveAll();
  }
}

TEST_P(KvViewForms, ScratchTakesLittleOfWhatIsFree) {
  device_.free_bytes = 320 * kMiB;
  for (const ViewMode mode : {ViewMode::kView, ViewMode::kGuarded}) {
    Reopen(ShapeOf(GetParam(), mode));
    EXPECT_LE(LargestScratch(), 10 * kMiB);
    ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
    EXPECT_TRUE(HasScratch(0));
    RemoveAll();
    EXPECT_EQ(fake_.free_bytes, device_.free_bytes);
  }
}

TEST_P(KvViewForms, OneGranuleOfMemoryIsEnoughForAView) {
  device_.free_bytes = kGranule;
  for (const ViewMode mode :
       {ViewMode::kView, ViewMode::kGuarded, ViewMode::kStrict}) {
    Reopen(ShapeOf(GetParam(), mode));
    for (const Redirection& t : tensors_) {
      for (uint64_t at = 0; at < t.reserved_bytes; at += kGranule) {
        ASSERT_TRUE(IsScratch(t.base + at)) << at;
      }
    }
    ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
    EXPECT_TRUE(HasScratch(0));
    RemoveAll();
  }
}

// vLLM captures graphs while the engine's keeper maps slabs that have arrived.
TEST_P(KvViewForms, NoChangeOfMappingsEndsACaptureOfTheProgram) {
  for (const ViewMode mode :
       {ViewMode::kView, ViewMode::kGuarded, ViewMode::kStrict}) {
    Reopen(ShapeOf(GetParam(), mode));
    ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
    if (mode != ViewMode::kView) {
      ASSERT_EQ(view_.SwapIn(driver_.entry, &link_, 1, 1).outcome,
                MapOutcome::kMapped);
      ASSERT_EQ(view_.SwapOut(driver_.entry, 1), CUDA_SUCCESS);
    }
    ASSERT_EQ(view_.UnmapAll(driver_.entry), CUDA_SUCCESS);
    ASSERT_EQ(view_.MapAgain(driver_.entry, shape_.epoch), CUDA_SUCCESS);
    RemoveAll();
    EXPECT_EQ(fake_.forbidden_calls, 0);
    EXPECT_EQ(fake_.capture_mode, driver::CU_STREAM_CAPTURE_MODE_GLOBAL);
  }
}

TEST_P(KvViewForms, DriverThatRefusesARangeOfAliasesGetsItPieceByPiece) {
  device_.aliases_apart = true;
  for (const uint64_t free_bytes : {uint64_t{64} << 30, 40 * kMiB}) {
    device_.free_bytes = free_bytes;
    for (const ViewMode mode :
         {ViewMode::kView, ViewMode::kGuarded, ViewMode::kStrict}) {
      Reopen(ShapeOf(GetParam(), mode));
      ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
      const uint32_t n = shape_.slabs;
      if (mode != ViewMode::kView) {
        ASSERT_EQ(view_.SwapIn(driver_.entry, &link_, n, 1).outcome,
                  MapOutcome::kMapped);
        ASSERT_TRUE(HasSlab(n));
        ASSERT_EQ(view_.SwapOut(driver_.entry, n), CUDA_SUCCESS);
      }
      EXPECT_TRUE(AllAccessible());
      RemoveAll();
    }
  }
}

// Another process may take the memory between the query and the allocation.
TEST_P(KvViewForms, ScratchBecomesSmallerUntilThereIsRoomForIt) {
  device_.fail = "cuMemGetInfo";
  for (const uint64_t free_bytes : {3 * kGranule, 40 * kMiB, 80 * kMiB}) {
    device_.free_bytes = free_bytes;
    Reopen(ShapeOf(GetParam(), ViewMode::kView));
    ASSERT_TRUE(view_.complete());
    EXPECT_TRUE(AllAccessible());
    EXPECT_LE(ScratchBytes(), free_bytes);
    ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
    EXPECT_TRUE(HasSlab(shape_.slabs));
    RemoveAll();
  }
}

TEST_P(KvViewForms, ActivatedViewHasEveryGranuleAtItsPlace) {
  Open(ShapeOf(GetParam(), ViewMode::kView));
  ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
  EXPECT_TRUE(HasScratch(0)) << "the null block is there";
  for (uint32_t v = 1; v <= shape_.slabs; ++v) {
    ASSERT_TRUE(HasSlab(v)) << v;
    ASSERT_TRUE(view_.resident(v));
  }
  for (const Redirection& t : tensors_) {
    ASSERT_TRUE(HandleAt(t.base + t.reserved_bytes - 1) != 0) << "the rest";
  }
  EXPECT_EQ(PoolMappings(), uint64_t{shape_.slabs} * shape_.used_granules());
  EXPECT_EQ(fake_.handles, 0) << "mappings keep the memory";
  EXPECT_EQ(fake_.zeroed.size(), fake_.created.size());
  RemoveAll();
}

TEST_P(KvViewForms, SlabsComeAndGoAloneInOtherModes) {
  for (const ViewMode mode : {ViewMode::kGuarded, ViewMode::kStrict}) {
    SCOPED_TRACE(static_cast<int>(mode));
    Reopen(ShapeOf(GetParam(), mode));
    ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
    const bool strict = mode == ViewMode::kStrict;
    const uint32_t n = shape_.slabs;
    EXPECT_EQ(PoolMappings(), 0u);
    EXPECT_TRUE(strict ? HasNothing(n) : HasScratch(n));
    ASSERT_EQ(view_.SwapIn(driver_.entry, &link_, n, 1).outcome,
              MapOutcome::kMapped);
    EXPECT_TRUE(HasSlab(n));
    EXPECT_EQ(PoolMappings(), shape_.used_granules());
    EXPECT_TRUE(strict ? HasNothing(1) : HasScratch(1));
    ASSERT_EQ(view_.SwapOut(driver_.entry, n), CUDA_SUCCESS);
    EXPECT_TRUE(strict ? HasNothing(n) : HasScratch(n));
    EXPECT_EQ(PoolMappings(), 0u);
    ASSERT_EQ(view_.SwapIn(driver_.entry, &link_, 1, 1).outcome,
              MapOutcome::kMapped);
    EXPECT_TRUE(HasSlab(1));
    RemoveAll();
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, KvViewForms, testing::ValuesIn(kForms),
                         [](const auto& info) { return info.param.name; });

constexpr Form kSmall = {"", 2, 1, 64 << 10, 2, 4, 3};

TEST_F(ViewMappingTest, AnAllocatorsRoundingIsATensorAndOtherSizesAreNot) {
  Open(ShapeOf(kSmall, ViewMode::kView));
  const uint64_t bytes = shape_.tensor_bytes();
  EXPECT_TRUE(view_.Fits(bytes));
  EXPECT_TRUE(view_.Fits(bytes + 2 * kMiB));
  EXPECT_FALSE(view_.Fits(bytes - 1));
  EXPECT_FALSE(view_.Fits(bytes + 2 * kMiB + 1));
  Redirection one_more;
  EXPECT_EQ(view_.AddTensor(driver_.entry, bytes, &one_more).outcome,
            MapOutcome::kWrongSize);
}

TEST_F(ViewMappingTest, FreedTensorIsAllocatedAgainBeforeActivation) {
  Open(ShapeOf(kSmall, ViewMode::kView));
  ASSERT_EQ(view_.RemoveTensor(driver_.entry, tensors_[0].base), CUDA_SUCCESS);
  EXPECT_FALSE(view_.complete());
  ASSERT_EQ(view_.AddTensor(driver_.entry, shape_.tensor_bytes(), &tensors_[0])
                .outcome,
            MapOutcome::kMapped);
  ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
  EXPECT_TRUE(HasSlab(2));
  RemoveAll();
}

TEST_F(ViewMappingTest, SlabWithoutMemoryKeepsScratchUntilItIsSwappedIn) {
  Open(ShapeOf(kSmall, ViewMode::kView));
  absent_ = 2;
  ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
  EXPECT_TRUE(HasSlab(1));
  EXPECT_TRUE(HasScratch(2));
  EXPECT_TRUE(HasSlab(3));
  EXPECT_FALSE(view_.resident(2));
  ASSERT_EQ(view_.SwapIn(driver_.entry, &link_, 2, 1).outcome,
            MapOutcome::kMapped);
  EXPECT_TRUE(HasSlab(2));
  RemoveAll();
}

TEST_F(ViewMappingTest, BatchesAsSmallAsTheDaemonLikesMapTheSame) {
  Open(ShapeOf(kSmall, ViewMode::kView), {.most_granules = 3});
  ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
  for (uint32_t v = 1; v <= shape_.slabs; ++v) EXPECT_TRUE(HasSlab(v));
  RemoveAll();
}

TEST_F(ViewMappingTest, DaemonThatDiesWhileThePoolIsMappedLeavesNothingMapped) {
  Open(ShapeOf(kSmall, ViewMode::kView),
       {.fault = Fault::kCloseAtPoolGranules, .most_granules = 3});
  EXPECT_EQ(Activate().outcome, MapOutcome::kNoDaemon);
  EXPECT_EQ(PoolMappings(), 0u);
  EXPECT_TRUE(HasNothing(1));
  RemoveAll();
}

// The daemon shrinks the pool for another engine while this engine maps it.
TEST_F(ViewMappingTest, SlabThatLeavesThePoolInBetweenKeepsScratch) {
  Open(ShapeOf(kSmall, ViewMode::kView),
       {.fault = Fault::kRefuseGranulesOnce, .most_granules = 6});
  // The first batch holds one and a half slabs.
  const auto memory = [this](uint32_t v) -> uint64_t {
    return v == 2 && fake_.mappings.size() > 0 && PoolMappings() > 0 ? 0 : v;
  };
  ASSERT_EQ(view_.Activate(driver_.entry, &link_, memory).outcome,
            MapOutcome::kMapped);
  EXPECT_TRUE(HasSlab(1));
  EXPECT_TRUE(HasScratch(2));
  EXPECT_TRUE(HasSlab(3));
  EXPECT_FALSE(view_.resident(2));
  RemoveAll();
}

// A pool that has not changed refuses its granules for good.
TEST_F(ViewMappingTest, GranulesOfAPoolThatStaysAsItIsAreNotAskedForAgain) {
  Open(ShapeOf(kSmall, ViewMode::kView),
       {.fault = Fault::kRefuseGranulesOnce, .most_granules = 6});
  EXPECT_EQ(Activate().outcome, MapOutcome::kRefused);
  EXPECT_EQ(PoolMappings(), 0u);
  RemoveAll();
}

TEST_F(ViewMappingTest, RefusedGranulesLeaveTheSlabsPlaceAsItWas) {
  Open(ShapeOf(kSmall, ViewMode::kGuarded),
       {.fault = Fault::kRefusePoolGranules});
  ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
  EXPECT_EQ(view_.SwapIn(driver_.entry, &link_, 1, 1).outcome,
            MapOutcome::kRefused);
  EXPECT_TRUE(HasScratch(1));
  EXPECT_FALSE(view_.broken(1));
  RemoveAll();
}

// Each kind of driver call fails once, at each of its occurrences.
struct Failing {
  const char* function;
  ViewMode mode;
};
class KvViewFailure : public ViewMappingTest,
                      public testing::WithParamInterface<Failing> {};

TEST_P(KvViewFailure, ActivationLeavesNothingOfThePoolMapped) {
  int failures = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    Reopen(ShapeOf(kSmall, GetParam().mode));
    fake_.fail = GetParam().function;
    fake_.fail_after = n;
    const MapResult result = Activate();
    const bool reached = fake_.fail_after < 0;
    fake_.fail = "";
    if (result.outcome == MapOutcome::kMapped) {
      if (!reached) break;
      continue;  // the failure of this call does not matter
    }
    ++failures;
    ASSERT_EQ(result.outcome, MapOutcome::kDriverError);
    ASSERT_EQ(PoolMappings(), 0u);
    ASSERT_EQ(fake_.handles, GetParam().function == std::string("cuMemRelease"))
        << "only what the driver did not take back";
  }
  EXPECT_GT(failures, 0);
}

TEST_P(KvViewFailure, SwapIsUndoneOrTheSlabIsBroken) {
  Open(ShapeOf(kSmall, ViewMode::kGuarded));
  ASSERT_EQ(Activate().outcome, MapOutcome::kMapped);
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    fake_.fail = GetParam().function;
    fake_.fail_after = n;
    const MapResult in = view_.SwapIn(driver_.entry, &link_, 1, 1);
    fake_.fail = "";
    if (view_.broken(1)) break;  // never used or returned again
    if (in.outcome != MapOutcome::kMapped) {
      ASSERT_TRUE(HasScratch(1));
      continue;
    }
    ASSERT_TRUE(HasSlab(1));
    fake_.fail = GetParam().function;
    fake_.fail_after = n;
    const auto out = view_.SwapOut(driver_.entry, 1);
    const bool reached = fake_.fail_after < 0;
    fake_.fail = "";
    if (view_.broken(1)) break;
    if (out == CUDA_SUCCESS) {
      ASSERT_TRUE(HasScratch(1));
      if (!reached) break;
    } else {
      ASSERT_TRUE(HasSlab(1));
      ASSERT_EQ(view_.SwapOut(driver_.entry, 1), CUDA_SUCCESS);
    }
  }
  if (view_.broken(1)) {
    EXPECT_NE(view_.UnmapAll(driver_.entry), CUDA_SUCCESS)
        << "so the leases are kept";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, KvViewFailure,
    testing::Values(Failing{"cuMemMap", ViewMode::kView},
                    Failing{"cuMemUnmap", ViewMode::kView},
                    Failing{"cuMemSetAccess", ViewMode::kView},
                    Failing{"cuMemImport", ViewMode::kView},
                    Failing{"cuMemRelease", ViewMode::kView},
                    Failing{"cuMemset", ViewMode::kView},
                    Failing{"cuMemAddressReserve", ViewMode::kView},
                    Failing{"cuMemUnmap", ViewMode::kStrict}),
    [](const auto& info) {
      return std::string(info.param.function) +
             (info.param.mode == ViewMode::kView ? "" : "Strict");
    });

TEST_F(ViewMappingTest, TensorThatCannotBeBackedLeavesNothing) {
  const Form form = kSmall;
  for (const char* function :
       {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
        "cuCtxGetCurrent", "cuCtxGetDevice"}) {
    SCOPED_TRACE(function);
    fake_ = {};
    view_.Close();
    ASSERT_TRUE(view_.Open(ShapeOf(form, ViewMode::kView)));
    fake_.fail = function;
    Redirection tensor;
    EXPECT_EQ(
        view_.AddTensor(driver_.entry, view_.shape().tensor_bytes(), &tensor)
            .outcome,
        MapOutcome::kDriverError);
    EXPECT_EQ(fake_.mapped_bytes, 0u);
    EXPECT_EQ(fake_.reserved_bytes, 0u);
    EXPECT_TRUE(view_.empty());
  }
}

TEST_F(ViewMappingTest, FullDeviceIsOutOfMemoryAndKeepsNothing) {
  fake_.free_bytes = kGranule - 1;
  ASSERT_TRUE(view_.Open(ShapeOf(kSmall, ViewMode::kView)));
  Redirection tensor;
  const MapResult result =
      view_.AddTensor(driver_.entry, view_.shape().tensor_bytes(), &tensor);
  EXPECT_EQ(result.outcome, MapOutcome::kDriverError);
  EXPECT_EQ(result.result, driver::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
}

TEST_F(ViewMappingTest, TensorThatFailsLateLeavesNoScratchToTheDriver) {
  ASSERT_TRUE(view_.Open(ShapeOf(kSmall, ViewMode::kView)));
  fake_.fail = "cuMemSetAccess";
  Redirection tensor;
  EXPECT_EQ(
      view_.AddTensor(driver_.entry, view_.shape().tensor_bytes(), &tensor)
          .outcome,
      MapOutcome::kDriverError);
  EXPECT_TRUE(fake_.created.empty());
}

}  // namespace
}  // namespace fineserve::shim
