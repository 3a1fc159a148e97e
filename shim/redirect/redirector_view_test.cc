// Tests how allocations are served in a process that has a view of the pool, or
// that was started for one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "shim/redirect/redirector_fixture.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using abi::Hook;
using abi::Reason;
using abi::Verdict;
using driver::CUDA_ERROR_NOT_PERMITTED;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUresult;
using testing::HasSubstr;

class RedirectorViewTest : public RedirectorFixture {
 protected:
  void SetUp() override {
    RedirectorFixture::SetUp();
    StartDaemon({.slab_count = 6});
  }

  // A view of two tensors.
  void Register() {
    fs_kv_format format = {};
    format.struct_bytes = sizeof(format);
    format.mode = FS_KV_VIEW;
    format.planes = 2;
    format.planes_per_allocation = 1;
    format.page_bytes = 64 << 10;
    ASSERT_EQ(redirector_.view().Register(driver_, format, &geometry_), FS_OK)
        << KvErrorText();
  }
  size_t TensorBytes() const { return geometry_.blocks * (64 << 10); }
  CUresult Allocate(size_t bytes, bool in_scope, CUdeviceptr* out,
                    const driver::CUmemAllocationProp* prop = nullptr) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemAlloc_v2(out, bytes);
    };
    AllocationCall call{Hook::kMemAlloc, bytes, nullptr, Original(original)};
    call.in_scope = in_scope;
    call.prop = prop;
    return redirector_.Allocate(driver_, call, out);
  }

  fs_kv_geometry geometry_ = {};
};

TEST_F(RedirectorViewTest, ScopesAllocationOfATensorsSizeIsTheViews) {
  Register();
  CUdeviceptr address = 0;
  ASSERT_EQ(Allocate(TensorBytes(), true, &address), CUDA_SUCCESS);
  EXPECT_EQ(address, kReserved);
  EXPECT_EQ(LastDecision().verdict, Verdict::kRedirected);
  EXPECT_EQ(LastDecision().reason, Reason::kView);
  EXPECT_EQ(LastDecision().lease, 0u);
  Redirection range;
  ASSERT_TRUE(ranges_->Find(address + TensorBytes() - 1, &range));
  EXPECT_EQ(range.asked_bytes, TensorBytes());
  EXPECT_EQ(daemon_->free_slabs(), 6u) << "no whole slab was leased";
}

TEST_F(RedirectorViewTest, WhatIsNoTensorStaysTheDrivers) {
  Register();
  CUdeviceptr address = 0;
  const auto is_drivers = [&](size_t bytes, bool in_scope) {
    address = 0;
    EXPECT_EQ(Allocate(bytes, in_scope, &address), CUDA_SUCCESS);
    return address == kDriversOwn;
  };
  EXPECT_TRUE(is_drivers(TensorBytes() + 3 * kMiB, true));
  EXPECT_EQ(LastDecision().reason, Reason::kSlabSize);
  EXPECT_TRUE(is_drivers(TensorBytes(), false));
  EXPECT_EQ(LastDecision().reason, Reason::kNotKv);
  EXPECT_FALSE(is_drivers(TensorBytes(), true));
  EXPECT_FALSE(is_drivers(TensorBytes(), true));
  EXPECT_TRUE(is_drivers(TensorBytes(), true)) << "a tensor too many";
  EXPECT_EQ(LastDecision().reason, Reason::kSlabSize);
}

TEST_F(RedirectorViewTest, FreedTensorEndsTheViewAndIsRecorded) {
  Register();
  CUdeviceptr tensors[2];
  for (CUdeviceptr& t : tensors) Allocate(TensorBytes(), true, &t);
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  ASSERT_EQ(redirector_.view().Activate(driver_), FS_OK) << KvErrorText();
  EXPECT_EQ(redirector_.releaser().Free(driver_, tensors[0]), CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().verdict, Verdict::kReleased);
  EXPECT_EQ(daemon_->views().closed, 1);
  EXPECT_EQ(redirector_.releaser().Free(driver_, tensors[1]), CUDA_SUCCESS);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_EQ(Scoreboard().redirected_bytes, 0u);
  CUdeviceptr whole = 0;
  Allocate(4 * kMiB, true, &whole);
  EXPECT_EQ(LastDecision().reason, Reason::kScope) << "whole slabs again";
}

TEST_F(RedirectorViewTest, ViewEndsWithItsContext) {
  Register();
  CUdeviceptr tensors[2];
  for (CUdeviceptr& t : tensors) Allocate(TensorBytes(), true, &t);
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  ASSERT_EQ(redirector_.view().Activate(driver_), FS_OK) << KvErrorText();
  driver::CUcontext context = nullptr;
  driver_.entry.cuCtxGetCurrent(&context);
  const auto destroy = [&](const driver::EntryPoints&) {
    fake_.destroyed.insert(context);
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(redirector_.releaser().DestroyContext(driver_, Hook::kCtxDestroy,
                                                  context, Original(destroy)),
            CUDA_SUCCESS);
  EXPECT_EQ(daemon_->views().closed, 1);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
}

TEST_F(RedirectorViewTest, TensorThatCannotBeUnmappedStaysTheProgramsOwn) {
  Register();
  CUdeviceptr tensor = 0;
  Allocate(TensorBytes(), true, &tensor);
  fake_.fail = "cuCtxSynchronize";
  EXPECT_NE(redirector_.releaser().Free(driver_, tensor), CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().verdict, Verdict::kKept);
  EXPECT_TRUE(ranges_->MayHold(tensor));
  EXPECT_EQ(redirector_.releaser().Free(driver_, tensor), CUDA_SUCCESS);
}

TEST_F(RedirectorViewTest, FailedTensorIsTheDriversAndTheViewIsNotActivated) {
  Register();
  fake_.fail = "cuMemMap";
  CUdeviceptr address = 0;
  EXPECT_EQ(Allocate(TensorBytes(), true, &address), CUDA_SUCCESS);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(LastDecision().reason, Reason::kDriverError);
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  EXPECT_EQ(redirector_.view().Activate(driver_), FS_STATE);
}

TEST_F(RedirectorViewTest, ShortageIsReportedOnceAndTheResultStays) {
  Register();
  fake_.free_bytes = 0;
  fake_.fail = "cuMemAlloc";
  fake_.fail_with = driver::CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  EXPECT_EQ(Allocate(TensorBytes(), true, &address),
            driver::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(LastDecision().reason, Reason::kDriverError);
  fake_.fail_after = 0;
  EXPECT_EQ(Allocate(126 * kMiB, false, &address),
            driver::CUDA_ERROR_OUT_OF_MEMORY);
  const std::string said = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("cuMemAlloc_v2 of "));
  EXPECT_THAT(said, HasSubstr("0 B are free, the pool has 24 MiB"));
  EXPECT_THAT(said, HasSubstr("give fineserved a smaller --pool"));
  EXPECT_TRUE(fake_.created.empty()) << "the driver could have it all";
}

TEST_F(RedirectorViewTest, RequiredViewRefusesDeviceMemoryUntilThePoolIsOurs) {
  redirector_.RequireView();
  redirector_.scoreboard().RaisePluginStage(FS_KV_PLUGIN_LOADED);
  CUdeviceptr address = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Allocate(4 * kMiB, false, &address), CUDA_ERROR_NOT_PERMITTED);
  }
  EXPECT_EQ(Allocate(Redirector::kGateBytes, false, &address),
            CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(LastDecision().verdict, Verdict::kDenied);
  EXPECT_EQ(LastDecision().reason, Reason::kNoPlugin);
  EXPECT_EQ(Scoreboard().denied_allocations, 4u);
  const std::string said = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("nothing has replaced its block pool"));
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_REPLACED);
  EXPECT_EQ(Allocate(4 * kMiB, false, &address), CUDA_SUCCESS);
  EXPECT_EQ(address, kDriversOwn);
}

TEST_F(RedirectorViewTest, RequiredViewRefusesKvThatHasNone) {
  redirector_.RequireView();
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  CUdeviceptr address = 0;
  EXPECT_EQ(Allocate(4 * kMiB, true, &address), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(Allocate(64, true, &address), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(LastDecision().reason, Reason::kNoPlugin);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("its KV has no view of the pool"));
  testing::internal::CaptureStderr();
  Register();
  EXPECT_EQ(Allocate(TensorBytes(), true, &address), CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().reason, Reason::kView);
}

TEST_F(RedirectorViewTest, RequiredViewLeavesMemoryOfTheHostAlone) {
  redirector_.RequireView();
  driver::CUmemAllocationProp prop = {};
  prop.location.type = driver::CU_MEM_LOCATION_TYPE_HOST;
  CUdeviceptr address = 0;
  EXPECT_EQ(Allocate(4 * kMiB, false, &address, &prop), CUDA_SUCCESS);
}

TEST_F(RedirectorViewTest, PluginsStageOnlyGrowsAndIsKeptForTheNextScoreboard) {
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_REPLACED);
  redirector_.scoreboard().RaisePluginStage(FS_KV_PLUGIN_LOADED);
  EXPECT_EQ(redirector_.scoreboard().plugin_stage(),
            uint32_t{FS_KV_POOL_REPLACED});
  Register();
  const auto* header =
      static_cast<const abi::ScoreboardHeader*>(MapScoreboardOf(getpid()));
  EXPECT_EQ(header->plugin_stage.load(), uint32_t{FS_KV_POOL_REPLACED});
  redirector_.scoreboard().RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
  EXPECT_EQ(header->plugin_stage.load(), uint32_t{FS_KV_POOL_CONSTRUCTED});
}

}  // namespace
}  // namespace fineserve::shim
