// Tests how allocations are served.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "shim/redirect/redirector_fixture.h"

namespace fineserve::shim {
namespace {

using abi::LinkState;
using abi::Reason;
using abi::Verdict;
using driver::CUdeviceptr;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Fault = FakeDaemon::Fault;

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

// Every driver call of a mapping, at its first and at a later occurrence.
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
                    // The first two calls name the GPU before the mapping.
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
  // Call what the fork handler calls, without a fork.
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

}  // namespace
}  // namespace fineserve::shim
