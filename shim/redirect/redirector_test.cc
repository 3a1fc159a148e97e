#include "shim/redirect/redirector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "shim/testdata/fake_daemon.h"
#include "shim/testdata/fake_driver.h"
#include "shim/testdata/scoreboard_copy.h"

namespace fineserve::shim {
namespace {

using abi::Hook;
using abi::LinkState;
using abi::Reason;
using abi::Verdict;
using driver::CUdeviceptr;
using driver::CUmemoryPool;
using driver::CUresult;
using testing::ElementsAre;
using testing::IsEmpty;
using Fault = FakeDaemon::Fault;

constexpr size_t kMiB = 1 << 20;
constexpr size_t kSlabBytes = 4 * kMiB;  // the fake daemon's default

class RedirectorTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("FINESERVE_RUNTIME_DIR", folder_.path().c_str(), 1);
    redirector_.link().set_timeouts(kPatient);
    testing::internal::CaptureStderr();
  }
  void TearDown() override {
    testing::internal::GetCapturedStderr();
    redirector_.link().AbandonInChild();
    redirector_.scoreboard().AbandonInChild();
    unsetenv("FINESERVE_RUNTIME_DIR");
  }

  void StartDaemon(const FakeDaemon::Options& options = {}) {
    daemon_ = std::make_unique<FakeDaemon>(folder_.path(), kFakeGpu, options);
  }
  CUresult AllocateKv(size_t bytes, CUdeviceptr* out) {
    return Allocate(bytes, true, out, MemoryKind::kPlain);
  }
  CUresult AllocateOther(size_t bytes, CUdeviceptr* out) {
    return Allocate(bytes, false, out, MemoryKind::kPlain);
  }
  CUresult Allocate(size_t bytes, bool in_scope, CUdeviceptr* out,
                    MemoryKind kind, CUmemoryPool pool = nullptr) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemAlloc_v2(out, bytes);
    };
    AllocationCall call{Hook::kMemAllocAsync, bytes, nullptr,
                        Original(original), kind};
    call.in_scope = in_scope;
    call.pool = pool;
    return redirector_.Allocate(driver_, call, out);
  }
  CUresult FreeAsync(CUdeviceptr address) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemFree_v2(address);
    };
    return redirector_.FreeInStreamOrder(driver_, Hook::kMemFreeAsync, address,
                                         nullptr, Original(original));
  }
  ScoreboardCopy Scoreboard() const {
    return CopyScoreboard(MapScoreboardOf(getpid()));
  }
  abi::DecisionRecord LastDecision() const {
    return Scoreboard().decisions.back();
  }

  TemporaryFolder folder_;
  std::unique_ptr<FakeDaemon> daemon_;
  Driver driver_ = NewFakeDriver();
  std::unique_ptr<RangeTable> ranges_ = std::make_unique<RangeTable>();
  std::unique_ptr<RangeTable> mappings_ = std::make_unique<RangeTable>();
  Redirector redirector_{ranges_.get(), mappings_.get()};
  FakeDriverState& fake_ = TheFakeDriver();
};

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

TEST_F(RedirectorTest, FreeWaitsForTheContextBeforeItUnmapsAndReturns) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.log.clear();
  ASSERT_EQ(redirector_.Free(driver_, address), driver::CUDA_SUCCESS);
  EXPECT_THAT(fake_.log,
              ElementsAre("cuCtxPushCurrent", "cuCtxSynchronize",
                          "cuCtxPopCurrent", "cuMemUnmap", "cuMemAddressFree"));
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  EXPECT_EQ(LastDecision().verdict, Verdict::kReleased);
  EXPECT_EQ(Scoreboard().redirected_bytes, 0u);
  EXPECT_FALSE(ranges_->MayHold(address));
}

TEST_F(RedirectorTest, StickyErrorAtFreeKeepsLeaseAndRange) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.fail = "cuCtxSynchronize";
  fake_.fail_with = driver::CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(redirector_.Free(driver_, address),
            driver::CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(daemon_->returned(), IsEmpty());
  EXPECT_EQ(fake_.mapped_bytes, kSlabBytes);
  EXPECT_TRUE(ranges_->MayHold(address));
}

TEST_F(RedirectorTest, AddressInsideARangeIsNoValueToFree) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.log.clear();
  EXPECT_EQ(redirector_.Free(driver_, address + 1),
            driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(fake_.log, IsEmpty());
  EXPECT_TRUE(ranges_->MayHold(address));
}

TEST_F(RedirectorTest, AddressBetweenRangesIsTheDrivers) {
  StartDaemon();
  fake_.log.clear();
  EXPECT_EQ(redirector_.Free(driver_, kReserved), driver::CUDA_SUCCESS);
  EXPECT_THAT(fake_.log, ElementsAre("cuMemFree"));
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
  EXPECT_EQ(daemon_->free_slabs(), 100u);
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
                    // The first two name the GPU before the mapping.
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

TEST_F(RedirectorTest, KvOfARefusedProcessPassesThroughWithTheReason) {
  StartDaemon({.fault = Fault::kRefuseMember});
  CUdeviceptr address = 0;
  EXPECT_EQ(AllocateKv(kSlabBytes, &address), driver::CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().reason, Reason::kRefused);
}

TEST_F(RedirectorTest, RedirectedMemoryOutlivesItsDaemon) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  daemon_.reset();
  EXPECT_EQ(fake_.mapped_bytes, kSlabBytes);
  EXPECT_EQ(redirector_.Free(driver_, address), driver::CUDA_SUCCESS);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
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
  EXPECT_EQ(redirector_.Free(driver_, first), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), IsEmpty()) << "another daemon's lease";
  EXPECT_EQ(redirector_.Free(driver_, second), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
}

TEST_F(RedirectorTest, ErrorsOfTheProgramAreTheDriversToName) {
  StartDaemon();
  EXPECT_EQ(AllocateKv(kSlabBytes, nullptr), driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(daemon_->free_slabs(), 100u);
}

TEST_F(RedirectorTest, WithoutAContextNobodyIsAsked) {
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
  // What the fork handler does, here in one process.
  redirector_.AfterForkInChild();
  CUdeviceptr in_child = 0;
  EXPECT_EQ(AllocateKv(kSlabBytes, &in_child), driver::CUDA_SUCCESS);
  EXPECT_EQ(in_child, kDriversOwn);
  EXPECT_EQ(LastDecision().reason, Reason::kForkedChild);
  EXPECT_EQ(daemon_->free_slabs(), free_before);
  fake_.log.clear();
  redirector_.Free(driver_, address);
  EXPECT_THAT(fake_.log, ElementsAre("cuMemFree"));
}

TEST_F(RedirectorTest, ChildForkedBeforeJoiningStartsAfresh) {
  StartDaemon();
  redirector_.AfterForkInChild();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  EXPECT_EQ(address, kReserved);
}

// Communication libraries register addresses and remember what lies behind.
TEST_F(RedirectorTest, Pitfall11NothingChangesBehindAnAddressInUse) {
  StartDaemon({.slab_count = 8});
  CUdeviceptr living = 0, other = 0;
  ASSERT_EQ(AllocateKv(kSlabBytes, &living), driver::CUDA_SUCCESS);
  fake_.touched.clear();
  // Neighbours come and go, at once, in stream order, and half-way.
  AllocateKv(2 * kSlabBytes, &other);
  EXPECT_EQ(redirector_.Free(driver_, other), driver::CUDA_SUCCESS);
  AllocateKv(2 * kSlabBytes, &other);
  fake_.passed = false;
  EXPECT_EQ(FreeAsync(other), driver::CUDA_SUCCESS);
  fake_.passed = true;
  for (const char* call : {"cuMemImport", "cuMemMap", "cuMemSetAccess",
                           "cuMemRelease", "cuCtxSynchronize"}) {
    fake_.fail = call;
    fake_.fail_after = call == std::string("cuMemImport") ? 3 : 1;
    if (AllocateKv(2 * kSlabBytes, &other) == driver::CUDA_SUCCESS) {
      redirector_.Free(driver_, other);
    }
  }
  fake_.fail.clear();
  EXPECT_EQ(AllocateKv(100 * kSlabBytes, &other),
            driver::CUDA_ERROR_OUT_OF_MEMORY);
  daemon_.reset();
  AllocateKv(kSlabBytes, &other);
  StartDaemon({.epoch = 43});
  AllocateKv(kSlabBytes, &other);
  EXPECT_FALSE(fake_.touched.empty());
  for (const auto& t : fake_.touched) {
    EXPECT_TRUE(t.address + t.bytes <= living ||
                t.address >= living + kSlabBytes)
        << std::hex << t.address << " + " << t.bytes;
  }
  EXPECT_EQ(redirector_.Free(driver_, living), driver::CUDA_SUCCESS);
}

using StreamOrder = RedirectorTest;

TEST_F(StreamOrder, FreedSlabsComeBackOnlyOnceTheStreamHasPassed) {
  StartDaemon();
  CUdeviceptr address = 0, other = 0;
  ASSERT_EQ(Allocate(kSlabBytes, true, &address, MemoryKind::kStreamOrdered),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(address, kReserved);
  fake_.passed = false;
  ASSERT_EQ(FreeAsync(address), driver::CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().verdict, Verdict::kDeferred);
  AllocateOther(4 * kMiB, &other);
  EXPECT_THAT(daemon_->returned(), IsEmpty());
  EXPECT_EQ(fake_.mapped_bytes, kSlabBytes) << "a kernel may still write";
  EXPECT_EQ(Scoreboard().redirected_bytes, kSlabBytes);
  fake_.passed = true;
  AllocateOther(4 * kMiB, &other);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  EXPECT_EQ(Scoreboard().redirected_bytes, 0u);
  EXPECT_EQ(fake_.events, 0);
}

// Else a capture that the program has under way would end by our question.
TEST_F(StreamOrder, EventsAreAskedAboutInTheModeThatForbidsNothing) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.passed = false;
  FreeAsync(address);
  EXPECT_FALSE(redirector_.CollectDeferred(driver_));
  fake_.passed = true;
  EXPECT_TRUE(redirector_.CollectDeferred(driver_));
  EXPECT_EQ(fake_.forbidden_queries, 0);
  EXPECT_EQ(fake_.capture_mode, driver::CU_STREAM_CAPTURE_MODE_GLOBAL)
      << "the program's own mode is back";
}

TEST_F(StreamOrder, FreeOfAnIdleStreamGivesBackAtOnceAndNeverWaits) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.log.clear();
  ASSERT_EQ(FreeAsync(address), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  EXPECT_EQ(std::count(fake_.log.begin(), fake_.log.end(), "cuCtxSynchronize"),
            0);
  EXPECT_EQ(LastDecision().verdict, Verdict::kReleased);
}

TEST_F(StreamOrder, SecondFreeAndFreeInsideAreRefused) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  EXPECT_EQ(FreeAsync(address + 512), driver::CUDA_ERROR_INVALID_VALUE);
  fake_.passed = false;
  EXPECT_EQ(FreeAsync(address), driver::CUDA_SUCCESS);
  fake_.log.clear();
  // Not ours any more: the driver refuses what it never allocated.
  FreeAsync(address);
  EXPECT_EQ(fake_.log.back(), "cuMemFree");
  EXPECT_THAT(daemon_->returned(), IsEmpty());
}

TEST_F(StreamOrder, EventThatCannotBeRecordedFreesNothing) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  for (const char* call : {"cuEventCreate", "cuEventRecord"}) {
    fake_.fail = call;
    fake_.fail_after = 0;
    fake_.fail_with = driver::CUDA_ERROR_INVALID_HANDLE;
    EXPECT_EQ(FreeAsync(address), driver::CUDA_ERROR_INVALID_HANDLE) << call;
    EXPECT_TRUE(ranges_->MayHold(address));
    EXPECT_EQ(fake_.events, 0);
  }
  EXPECT_THAT(daemon_->returned(), IsEmpty());
}

TEST_F(StreamOrder, ExhaustedPoolWaitsForWhatThisProcessFreed) {
  StartDaemon({.slab_count = 1});
  CUdeviceptr first = 0, second = 0;
  AllocateKv(kSlabBytes, &first);
  fake_.passed = false;
  fake_.passes_after = 5;  // queries
  FreeAsync(first);
  EXPECT_EQ(AllocateKv(kSlabBytes, &second), driver::CUDA_SUCCESS);
  EXPECT_EQ(LastDecision().verdict, Verdict::kRedirected);
}

TEST_F(StreamOrder, StreamThatNeverPassesKeepsItsSlabsAndTheWaitEnds) {
  StartDaemon({.slab_count = 1});
  CUdeviceptr first = 0, second = 0;
  AllocateKv(kSlabBytes, &first);
  fake_.passed = false;
  FreeAsync(first);
  EXPECT_EQ(AllocateKv(kSlabBytes, &second), driver::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_.mapped_bytes, kSlabBytes);
}

TEST_F(StreamOrder, AllocationOfACaptureBelongsToTheGraph) {
  StartDaemon();
  CUdeviceptr address = 0, kept = 0;
  AllocateKv(kSlabBytes, &kept);
  fake_.capturing = true;
  Allocate(kSlabBytes, true, &address, MemoryKind::kStreamOrdered);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(LastDecision().reason, Reason::kCapturing);
  EXPECT_EQ(FreeAsync(kept), driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(ranges_->MayHold(kept));
}

TEST_F(StreamOrder, PoolThatThisDeviceCannotWriteIsLeftAlone) {
  StartDaemon();
  auto* const pool = reinterpret_cast<CUmemoryPool>(&fake_);
  CUdeviceptr address = 0;
  fake_.pool_access = driver::CU_MEM_ACCESS_FLAGS_PROT_READ;
  Allocate(kSlabBytes, true, &address, MemoryKind::kStreamOrdered, pool);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(LastDecision().reason, Reason::kMemoryKind);
  fake_.pool_access = driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  Allocate(kSlabBytes, true, &address, MemoryKind::kStreamOrdered, pool);
  EXPECT_EQ(address, kReserved);
}

TEST_F(RedirectorTest, PitchedAndManagedMemoryIsNeverRedirectedAndSaysSo) {
  StartDaemon();
  CUdeviceptr address = 0;
  Allocate(kSlabBytes, true, &address, MemoryKind::kOther);
  EXPECT_EQ(address, kDriversOwn);
  EXPECT_EQ(LastDecision().verdict, Verdict::kPassThrough);
  EXPECT_EQ(LastDecision().reason, Reason::kMemoryKind);
  EXPECT_EQ(daemon_->free_slabs(), 100u);
}

}  // namespace
}  // namespace fineserve::shim
