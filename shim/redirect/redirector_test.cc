#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "shim/redirect/redirector_fixture.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using Fault = FakeDaemon::Fault;
using abi::Hook;
using abi::LinkState;
using abi::Reason;
using abi::Verdict;
using driver::CUDA_ERROR_NOT_PERMITTED;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUresult;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Tests how allocations are served.

TEST_F(RedirectorTest, KvIsBackedByWholeSlabsUnderOneAccessCall) {
  StartDaemon();
  CUdeviceptr address = 0;
  ASSERT_EQ(AllocateKv(kSlabBytes + 1, &address), driver::CUDA_SUCCESS);
  EXPECT_EQ(address, kReserved);
  EXPECT_EQ(fake_.mapped_bytes, 2 * kSlabBytes);
  EXPECT_EQ(fake_.accessible_bytes, 2 * kSlabBytes);
  EXPECT_EQ(fake_.handles, 0) << "each handle is released, the mapping stays";
  EXPECT_EQ(std::count(fake_.log.begin(), fake_.log.end(), "cuMemSetAccess"),
            1);
  EXPECT_EQ(daemon_->free_slabs(), 98u);
  const abi::DecisionRecord d = LastDecision();
  EXPECT_EQ(d.verdict, Verdict::kRedirected);
  EXPECT_EQ(d.reason, Reason::kScope);
  EXPECT_EQ(d.address, kReserved);
  EXPECT_EQ(d.bytes, kSlabBytes + 1);
  EXPECT_EQ(Scoreboard().redirected_bytes, kSlabBytes + 1);
}

TEST_F(RedirectorTest, DeclaredSizeOfTheDaemonIsKv) {
  StartDaemon({.declared = {64 * kMiB}});
  CUdeviceptr address = 0;
  AllocateOther(64 * kMiB, &address);
  EXPECT_EQ(address, kReserved);
  EXPECT_EQ(LastDecision().reason, Reason::kDeclaredSize);
  AllocateOther(64 * kMiB + 1, &address);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(LastDecision().reason, Reason::kNotKv);
}

TEST_F(RedirectorTest, ExhaustedPoolIsOutOfMemoryAndNotTheDriversMemory) {
  StartDaemon({.slab_count = 1});
  CUdeviceptr address = 7;
  EXPECT_EQ(AllocateKv(2 * kSlabBytes, &address),
            driver::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(address, 7u);
  EXPECT_EQ(LastDecision().verdict, Verdict::kDenied);
  EXPECT_EQ(LastDecision().reason, Reason::kPoolExhausted);
  EXPECT_EQ(Scoreboard().denied_allocations, 1u);
  EXPECT_EQ(std::count(fake_.log.begin(), fake_.log.end(), "cuMemAlloc"), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_THAT(said, HasSubstr("8 MiB failed: the pool has 0 slabs left: of "));
  EXPECT_THAT(said, HasSubstr("give fineserved a larger --pool"));
}

TEST_F(RedirectorTest, ReachedLimitIsNotReportedAsASmallPool) {
  StartDaemon({.slab_count = 1,
               .exhausted = "the engine's limit of 1 slabs (fsctl limit)"});
  CUdeviceptr address = 7;
  EXPECT_EQ(AllocateKv(2 * kSlabBytes, &address),
            driver::CUDA_ERROR_OUT_OF_MEMORY);
  const std::string said = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_THAT(said, HasSubstr("8 MiB failed: the engine's limit of 1 slabs"));
  EXPECT_THAT(said, HasSubstr("raise the limit with fsctl limit"));
  EXPECT_THAT(said, Not(HasSubstr("--pool")));
}

// Every driver call of a mapping, which fails at its first and at a later
// occurrence.
struct FailingCall {
  const char* function;
  int after;
};
void PrintTo(const FailingCall& call, std::ostream* out) {
  *out << call.function << " after " << call.after;
}

class FailedMapping : public RedirectorTest,
                      public testing::WithParamInterface<FailingCall> {};

TEST_P(FailedMapping, IsUndoneAndPassesThrough) {
  StartDaemon();
  fake_.fail = GetParam().function;
  fake_.fail_after = GetParam().after;
  fake_.fail_with = driver::CUDA_ERROR_NOT_PERMITTED;
  CUdeviceptr address = 0;
  EXPECT_EQ(AllocateKv(2 * kSlabBytes, &address), driver::CUDA_SUCCESS);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_TRUE(daemon_->GetsBack(100));
  EXPECT_FALSE(ranges_->MayHold(kReserved));
  const abi::DecisionRecord d = LastDecision();
  EXPECT_EQ(d.verdict, Verdict::kPassThrough);
  EXPECT_EQ(d.reason, Reason::kDriverError);
  EXPECT_EQ(d.result, driver::CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(d.address, kDriversOwn);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, FailedMapping,
    testing::Values(FailingCall{"cuCtxGetCurrent", 0},
                    FailingCall{"cuMemAddressReserve", 0},
                    FailingCall{"cuMemImport", 0},
                    FailingCall{"cuMemImport", 3}, FailingCall{"cuMemMap", 0},
                    FailingCall{"cuMemMap", 2}, FailingCall{"cuMemRelease", 0},
                    FailingCall{"cuMemRelease", 3},
                    // The first two calls look up the GPU before the mapping.
                    FailingCall{"cuCtxGetDevice", 2},
                    FailingCall{"cuMemSetAccess", 0}),
    [](const auto& info) {
      return info.param.function + std::to_string(info.param.after);
    });

TEST_F(RedirectorTest, RollbackThatFailsKeepsTheLease) {
  StartDaemon();
  driver_.entry.cuMemUnmap = [](CUdeviceptr, size_t) {
    return driver::CUDA_ERROR_UNMAP_FAILED;
  };
  fake_.fail = "cuMemSetAccess";
  CUdeviceptr address = 0;
  EXPECT_EQ(AllocateKv(kSlabBytes, &address), driver::CUDA_SUCCESS);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_THAT(daemon_->returned(), IsEmpty());
}

TEST_F(RedirectorTest, DaemonGoneMidLeaseLeavesNothingAndPassesThrough) {
  StartDaemon({.fault = Fault::kCloseAtGranules});
  CUdeviceptr address = 0;
  EXPECT_EQ(AllocateKv(kSlabBytes, &address), driver::CUDA_SUCCESS);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
  EXPECT_EQ(LastDecision().reason, Reason::kNoDaemon);
  EXPECT_EQ(Scoreboard().link_state, LinkState::kLost);
}

TEST_F(RedirectorTest, KvWithoutDaemonPassesThroughWithTheReason) {
  CUdeviceptr address = 0;
  EXPECT_EQ(AllocateKv(kSlabBytes, &address), driver::CUDA_SUCCESS);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(LastDecision().reason, Reason::kNoDaemon);
  EXPECT_EQ(LastDecision().verdict, Verdict::kPassThrough);
}

TEST_F(RedirectorTest, LargeAllocationOfAnyKindLooksForADaemonThatCameLate) {
  redirector_.link().set_timeouts({.reconnect_pause_ms = 0});
  CUdeviceptr address = 0;
  AllocateOther(kSlabBytes, &address);
  StartDaemon();
  AllocateOther(kSlabBytes, &address);
  EXPECT_EQ(redirector_.link().state(), abi::LinkState::kConnected);
  AllocateKv(kSlabBytes, &address);
  EXPECT_NE(address, kDriversOwn);
}

TEST_F(RedirectorTest, KvOnAnotherGpuStaysTheDriversWithOneWarning) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  driver_.entry.cuDeviceGetUuid_v2 = [](driver::CUuuid* uuid,
                                        driver::CUdevice) {
    *uuid = {};
    return driver::CUDA_SUCCESS;
  };
  for (int i = 0; i < 2; ++i) {
    AllocateKv(kSlabBytes, &address);
    EXPECT_EQ(address, kDriversOwn);
    EXPECT_EQ(LastDecision().reason, Reason::kOtherGpu);
  }
  const std::string warned = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_EQ(std::count(warned.begin(), warned.end(), '\n'), 1) << warned;
  EXPECT_THAT(warned, testing::HasSubstr("KV on several GPUs"));
}

TEST_F(RedirectorTest, KvOfARefusedProcessPassesThroughWithTheReason) {
  StartDaemon({.fault = Fault::kRefuseMember});
  CUdeviceptr address = 0;
  EXPECT_EQ(AllocateKv(kSlabBytes, &address), driver::CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().reason, Reason::kRefused);
}

TEST_F(RedirectorTest, NextDaemonServesKvAfterALoss) {
  StartDaemon();
  CUdeviceptr first = 0, lost = 0, second = 0;
  AllocateKv(kSlabBytes, &first);
  daemon_.reset();
  AllocateKv(kSlabBytes, &lost);
  EXPECT_EQ(lost, kDriversOwn);
  StartDaemon({.epoch = 43});
  AllocateKv(kSlabBytes, &second);
  EXPECT_NE(second, kDriversOwn);
  EXPECT_EQ(redirector_.releaser().Free(driver_, first), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), IsEmpty()) << "another daemon's lease";
  EXPECT_EQ(redirector_.releaser().Free(driver_, second), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
}

TEST_F(RedirectorTest, ErrorsOfTheProgramAreTheDriversToName) {
  StartDaemon();
  EXPECT_EQ(AllocateKv(kSlabBytes, nullptr), driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(daemon_->GetsBack(100));
}

TEST_F(RedirectorTest, WithoutAContextTheDaemonIsNotAsked) {
  StartDaemon();
  driver_.entry.cuCtxGetDevice = [](driver::CUdevice*) {
    return driver::CUDA_ERROR_INVALID_CONTEXT;
  };
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  EXPECT_EQ(daemon_->connections(), 0);
  EXPECT_EQ(redirector_.link().state(), LinkState::kNotTried);
}

TEST_F(RedirectorTest, StackOfALargeAllocationIsRecorded) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateOther(2 * kMiB, &address);
  EXPECT_GE(LastDecision().frame_count, 1);
  EXPECT_EQ(Scoreboard().stacks_captured, 1u);
  EXPECT_EQ(Scoreboard().large_allocations, 1u);
}

TEST_F(RedirectorTest, SmallAllocationInAScopeIsKvButNotUnwound) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(512, &address);
  EXPECT_EQ(address, kReserved);
  EXPECT_EQ(LastDecision().frame_count, 0);
  EXPECT_EQ(Scoreboard().stacks_captured, 0u);
}

TEST_F(RedirectorTest, ChildForkedAfterJoiningAsksForNothing) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  const uint32_t free_before = daemon_->free_slabs();
  // Call what the fork handler calls, without forking.
  redirector_.AfterForkInChild();
  CUdeviceptr in_child = 0;
  EXPECT_EQ(AllocateKv(kSlabBytes, &in_child), driver::CUDA_SUCCESS);
  EXPECT_EQ(in_child, kDriversOwn);
  EXPECT_EQ(LastDecision().reason, Reason::kForkedChild);
  EXPECT_TRUE(daemon_->GetsBack(free_before));
  EXPECT_TRUE(redirector_.forked()) << "the hooks ask for nothing further";
}

TEST_F(RedirectorTest, ChildForkedBeforeJoiningStartsAfresh) {
  StartDaemon();
  redirector_.AfterForkInChild();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  EXPECT_EQ(address, kReserved);
}

TEST_F(RedirectorTest, PitchedAndManagedMemoryIsNeverRedirectedAndSaysSo) {
  StartDaemon();
  CUdeviceptr address = 0;
  Allocate(kSlabBytes, true, &address, MemoryKind::kOther);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(LastDecision().verdict, Verdict::kPassThrough);
  EXPECT_EQ(LastDecision().reason, Reason::kMemoryKind);
  EXPECT_TRUE(daemon_->GetsBack(100));
}

// Tests how allocations are served in a process that has a view of the pool, or
// that was started to have one.

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

TEST_F(RedirectorViewTest, OtherAllocationStaysTheDrivers) {
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
