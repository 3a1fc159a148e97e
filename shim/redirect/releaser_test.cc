// Tests how redirected allocations are freed: at once and in stream order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "shim/redirect/redirector_fixture.h"

namespace fineserve::shim {
namespace {

using abi::Reason;
using abi::Verdict;
using driver::CUdeviceptr;
using driver::CUmemoryPool;
using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(RedirectorTest, FreeWaitsForTheContextBeforeItUnmapsAndReturns) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.log.clear();
  ASSERT_EQ(redirector_.releaser().Free(driver_, address),
            driver::CUDA_SUCCESS);
  EXPECT_THAT(fake_.log,
              ElementsAre("cuCtxPushCurrent", "cuCtxSynchronize",
                          "cuCtxPopCurrent", "cuMemUnmap", "cuMemAddressFree"));
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  EXPECT_EQ(LastDecision().verdict, Verdict::kReleased);
  EXPECT_EQ(Scoreboard().redirected_bytes, 0u);
  EXPECT_FALSE(ranges_->MayHold(address));
}

TEST_F(RedirectorTest,
       FreeThatTheDaemonDidNotHearOfIsReportedByTheNextAllocation) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  daemon_->Disconnect();
  redirector_.link().Look();
  ASSERT_EQ(redirector_.releaser().Free(driver_, address),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(redirector_.link().state(), abi::LinkState::kLost);
  EXPECT_THAT(daemon_->returned(), IsEmpty());
  AllocateOther(64 << 20, &address);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
}

TEST_F(RedirectorTest, StickyErrorAtFreeKeepsLeaseAndRange) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.fail = "cuCtxSynchronize";
  fake_.fail_with = driver::CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(redirector_.releaser().Free(driver_, address),
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
  EXPECT_EQ(redirector_.releaser().Free(driver_, address + 1),
            driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(fake_.log, IsEmpty());
  EXPECT_TRUE(ranges_->MayHold(address));
}

TEST_F(RedirectorTest, AddressBetweenRangesIsTheDrivers) {
  StartDaemon();
  fake_.log.clear();
  EXPECT_EQ(redirector_.releaser().Free(driver_, kReserved),
            driver::CUDA_SUCCESS);
  EXPECT_THAT(fake_.log, ElementsAre("cuMemFree"));
}

TEST_F(RedirectorTest, RedirectedMemoryOutlivesItsDaemon) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  daemon_.reset();
  EXPECT_EQ(fake_.mapped_bytes, kSlabBytes);
  EXPECT_EQ(redirector_.releaser().Free(driver_, address),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
}

// Memory of a context is freed with the context, whether or not it was freed in
// stream order.
class ContextEnd : public RedirectorTest {
 protected:
  void SetUp() override {
    RedirectorTest::SetUp();
    StartDaemon();
    // Two allocations of the first context, one of which is freed after work
    // that never ends, and one allocation of another context.
    AllocateKv(kSlabBytes, &kept_);
    AllocateKv(kSlabBytes, &freed_);
    fake_.passed = false;
    EXPECT_EQ(FreeAsync(freed_), driver::CUDA_SUCCESS);
    fake_.pushed = {Handle(&other_)};
    AllocateKv(kSlabBytes, &others_);
    fake_.pushed.clear();
    fake_.log.clear();
  }
  static driver::CUcontext Handle(void* of) {
    return static_cast<driver::CUcontext>(of);
  }
  driver::CUcontext first() { return Handle(&fake_); }
  driver::CUresult Destroy(driver::CUcontext context, driver::CUresult answer) {
    const auto original = [&](const driver::EntryPoints&) {
      if (answer == driver::CUDA_SUCCESS) fake_.destroyed.insert(context);
      return answer;
    };
    return redirector_.releaser().DestroyContext(
        driver_, abi::Hook::kCtxDestroy, context, Original(original));
  }
  driver::CUresult ReleasePrimary(bool last) {
    const auto original = [&](const driver::EntryPoints&) {
      if (last) fake_.primary = nullptr;
      return driver::CUDA_SUCCESS;
    };
    return redirector_.releaser().EndPrimary(
        driver_, abi::Hook::kPrimaryRelease, 0, Original(original));
  }
  void ExpectOnlyTheOthersLives() {
    EXPECT_EQ(fake_.mapped_bytes, kSlabBytes);
    EXPECT_THAT(daemon_->returned(), testing::UnorderedElementsAre(1, 2));
    EXPECT_FALSE(ranges_->MayHold(kept_));
    EXPECT_TRUE(ranges_->MayHold(others_));
    EXPECT_FALSE(redirector_.releaser().CollectPassed(driver_));
    EXPECT_EQ(std::count(fake_.log.begin(), fake_.log.end(), "cuEventQuery"), 0)
        << "events end with their context";
  }

  CUdeviceptr kept_ = 0, freed_ = 0, others_ = 0;
  int other_ = 0;
};

TEST_F(ContextEnd, RangesAndDeferredFreesEndWithTheirContext) {
  EXPECT_EQ(Destroy(first(), driver::CUDA_SUCCESS), driver::CUDA_SUCCESS);
  ExpectOnlyTheOthersLives();
  EXPECT_EQ(Destroy(Handle(&other_), driver::CUDA_SUCCESS),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
}

TEST_F(ContextEnd, ContextThatIsNotDestroyedKeepsAll) {
  EXPECT_EQ(Destroy(first(), driver::CUDA_ERROR_INVALID_CONTEXT),
            driver::CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_THAT(daemon_->returned(), IsEmpty());
  fake_.passed = true;
  EXPECT_TRUE(redirector_.releaser().CollectPassed(driver_));
  EXPECT_THAT(daemon_->returned(), ElementsAre(2));
}

TEST_F(ContextEnd, PrimaryOneEndsWithTheLastReference) {
  fake_.primary = first();
  EXPECT_EQ(ReleasePrimary(/*last=*/false), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), IsEmpty());
  EXPECT_EQ(ReleasePrimary(/*last=*/true), driver::CUDA_SUCCESS);
  ExpectOnlyTheOthersLives();
  EXPECT_EQ(fake_.primary_references, 0);
}

// The shim did not see the context's end: it is a green context, or a library
// destroyed it.
TEST_F(ContextEnd, FreeAfterItNeedsNoWait) {
  fake_.destroyed = {first()};
  EXPECT_EQ(redirector_.releaser().Free(driver_, kept_), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
}

// Communication libraries register addresses and remember what they refer to.
TEST_F(RedirectorTest, Pitfall11NothingChangesBehindAnAddressInUse) {
  StartDaemon({.slab_count = 8});
  CUdeviceptr living = 0, other = 0;
  ASSERT_EQ(AllocateKv(kSlabBytes, &living), driver::CUDA_SUCCESS);
  fake_.touched.clear();
  // Neighbouring allocations come and go: at once, in stream order, and with
  // failures.
  AllocateKv(2 * kSlabBytes, &other);
  EXPECT_EQ(redirector_.releaser().Free(driver_, other), driver::CUDA_SUCCESS);
  AllocateKv(2 * kSlabBytes, &other);
  fake_.passed = false;
  EXPECT_EQ(FreeAsync(other), driver::CUDA_SUCCESS);
  fake_.passed = true;
  for (const char* call : {"cuMemImport", "cuMemMap", "cuMemSetAccess",
                           "cuMemRelease", "cuCtxSynchronize"}) {
    fake_.fail = call;
    fake_.fail_after = call == std::string("cuMemImport") ? 3 : 1;
    if (AllocateKv(2 * kSlabBytes, &other) == driver::CUDA_SUCCESS) {
      redirector_.releaser().Free(driver_, other);
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
  EXPECT_EQ(redirector_.releaser().Free(driver_, living), driver::CUDA_SUCCESS);
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

// In another mode, our query would invalidate a capture that the program has in
// progress.
TEST_F(StreamOrder, EventsAreAskedAboutInTheModeThatForbidsNothing) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  fake_.passed = false;
  FreeAsync(address);
  EXPECT_FALSE(redirector_.releaser().CollectPassed(driver_));
  fake_.passed = true;
  EXPECT_TRUE(redirector_.releaser().CollectPassed(driver_));
  EXPECT_EQ(fake_.forbidden_calls, 0);
  EXPECT_EQ(fake_.capture_mode, driver::CU_STREAM_CAPTURE_MODE_GLOBAL)
      << "the program's own mode is back";
}

TEST_F(StreamOrder, StreamMayBelongToAContextThatIsNotCurrent) {
  StartDaemon();
  CUdeviceptr address = 0;
  AllocateKv(kSlabBytes, &address);
  int other = 0;
  fake_.stream_context = reinterpret_cast<driver::CUcontext>(&other);
  EXPECT_EQ(FreeAsync(address), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
  EXPECT_THAT(fake_.pushed, IsEmpty()) << "the program's own is current again";
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
  // The range is not ours any longer. A driver refuses an address that it never
  // allocated.
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

}  // namespace
}  // namespace fineserve::shim
