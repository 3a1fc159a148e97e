#include "shim/redirect/virtual_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shim/redirect/redirector_fixture.h"

namespace fineserve::shim {
namespace {

using abi::Hook;
using abi::Reason;
using abi::Verdict;
using driver::CUdeviceptr;
using driver::CUmemAllocationProp;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr CUdeviceptr kHere = 0x4000'0000'0000;  // the program's reservation

CUmemAllocationProp OnDevice() {
  CUmemAllocationProp prop = {};
  prop.type = driver::CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {driver::CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return prop;
}

// Tests the cuMemCreate family as the hooks call it.
class VirtualMemoryTest : public RedirectorFixture {
 protected:
  // The redirector's destructor frees nothing, because a host's exit does.
  void TearDown() override {
    fake_.fail.clear();
    Redirection m;
    while (mappings_->FirstOverlap(0, UINT64_MAX, &m)) {
      Unmap(m.base, m.reserved_bytes);
    }
    for (const CUmemGenericAllocationHandle handle : created_) {
      while (IsHeld(handle)) Release(handle);
    }
    RedirectorFixture::TearDown();
  }

  CUresult Create(size_t bytes, CUmemGenericAllocationHandle* handle,
                  const CUmemAllocationProp& prop = OnDevice(),
                  bool kv = true) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemCreate(handle, bytes, &prop, 0);
    };
    AllocationCall call{Hook::kMemCreate, bytes, nullptr, Original(original)};
    call.in_scope = kv;
    call.prop = &prop;
    const CUresult result = redirector_.Allocate(driver_, call, handle);
    created_.push_back(*handle);
    return result;
  }
  bool IsHeld(CUmemGenericAllocationHandle handle) {
    CUmemAllocationProp prop;
    const auto original = [](const driver::EntryPoints&) {
      return driver::CUDA_ERROR_NOT_FOUND;
    };
    return redirector_.virtual_memory().Properties(driver_.entry, &prop, handle,
                                                   Original(original)) ==
           driver::CUDA_SUCCESS;
  }
  CUmemGenericAllocationHandle NewHandle(size_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(Create(bytes, &handle), driver::CUDA_SUCCESS);
    EXPECT_FALSE(IsDrivers(handle));
    return handle;
  }
  CUresult Map(CUdeviceptr at, size_t bytes,
               CUmemGenericAllocationHandle handle, size_t offset = 0) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemMap(at, bytes, offset, handle, 0);
    };
    return redirector_.virtual_memory().Map(driver_.entry, at, bytes, offset,
                                            handle, 0, Original(original));
  }
  CUresult Unmap(CUdeviceptr at, size_t bytes) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemUnmap(at, bytes);
    };
    return redirector_.virtual_memory().Unmap(driver_.entry, at, bytes,
                                              Original(original));
  }
  CUresult Release(CUmemGenericAllocationHandle handle) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemRelease(handle);
    };
    return redirector_.Release(driver_.entry, handle, Original(original));
  }
  CUresult Retain(CUdeviceptr at, CUmemGenericAllocationHandle* handle) {
    const auto original = [](const driver::EntryPoints&) {
      return driver::CUDA_ERROR_NOT_FOUND;
    };
    return redirector_.virtual_memory().Retain(driver_.entry, handle, at,
                                               Original(original));
  }
  long Calls(const std::string& function) const {
    return std::count(fake_.log.begin(), fake_.log.end(), function);
  }

  std::vector<CUmemGenericAllocationHandle> created_;
};

// The memory is one that an engine gives up when it sleeps, and takes again
// when it wakes up.
TEST_F(VirtualMemoryTest, MemoryThatIsNoKvIsCountedWhileItsHandleIsHeld) {
  StartDaemon();
  CUmemGenericAllocationHandle a = 0, b = 0, kv = 0, host = 0;
  EXPECT_EQ(Create(6 * kMiB, &a, OnDevice(), /*kv=*/false),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(Create(2 * kMiB, &b, OnDevice(), /*kv=*/false),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(Create(kSlabBytes, &kv), driver::CUDA_SUCCESS);
  CUmemAllocationProp on_host = OnDevice();
  on_host.location.type = driver::CU_MEM_LOCATION_TYPE_HOST;
  EXPECT_EQ(Create(4 * kMiB, &host, on_host, /*kv=*/false),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(Scoreboard().created_bytes, 8 * kMiB);
  EXPECT_EQ(Release(a), driver::CUDA_SUCCESS);
  EXPECT_EQ(Release(kv), driver::CUDA_SUCCESS);
  EXPECT_EQ(Scoreboard().created_bytes, 2 * kMiB);
  EXPECT_EQ(Scoreboard().created_most_bytes, 8 * kMiB);
  EXPECT_EQ(Release(b), driver::CUDA_SUCCESS);
  EXPECT_EQ(Release(host), driver::CUDA_SUCCESS);
  EXPECT_EQ(Scoreboard().created_bytes, 0u);
}

TEST_F(VirtualMemoryTest, HandleIsMappedGranuleByGranuleWhereTheProgramWants) {
  StartDaemon();
  const auto handle = NewHandle(2 * kSlabBytes);
  EXPECT_EQ(LastDecision().verdict, Verdict::kRedirected);
  EXPECT_EQ(LastDecision().hook, Hook::kMemCreate);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  ASSERT_EQ(Map(kHere, 2 * kSlabBytes, handle), driver::CUDA_SUCCESS);
  EXPECT_EQ(fake_.mapped_bytes, 2 * kSlabBytes);
  EXPECT_EQ(Calls("cuMemMap"), 4);
  EXPECT_EQ(daemon_->free_slabs(), 98u);
}

TEST_F(VirtualMemoryTest, SlabsComeBackAfterTheLastOfHandleAndMapping) {
  StartDaemon();
  for (const bool release_first : {true, false}) {
    const auto handle = NewHandle(kSlabBytes);
    Map(kHere, kSlabBytes, handle);
    EXPECT_EQ(release_first ? Release(handle) : Unmap(kHere, kSlabBytes),
              driver::CUDA_SUCCESS);
    EXPECT_EQ(daemon_->free_slabs(), 99u);
    EXPECT_EQ(release_first ? Unmap(kHere, kSlabBytes) : Release(handle),
              driver::CUDA_SUCCESS);
    EXPECT_TRUE(daemon_->GetsBack(100));
    EXPECT_EQ(fake_.handles, 0);
    EXPECT_EQ(LastDecision().verdict, Verdict::kReleased);
  }
  EXPECT_EQ(Scoreboard().redirected_bytes, 0u);
}

TEST_F(VirtualMemoryTest, OneHandleAtTwoAddressesIsHeldByBoth) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  Map(kHere, kSlabBytes, handle);
  Map(kHere + kSlabBytes, kSlabBytes, handle);
  Release(handle);
  EXPECT_EQ(Map(kHere + 2 * kSlabBytes, kSlabBytes, handle),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(fake_.log.back(), "cuMemMap") << "a released handle is not ours";
  EXPECT_EQ(Unmap(kHere, 2 * kSlabBytes), driver::CUDA_SUCCESS) << "both";
  EXPECT_TRUE(daemon_->GetsBack(100));
}

TEST_F(VirtualMemoryTest, UnmapWaitsForTheContextFirst) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  Map(kHere, kSlabBytes, handle);
  fake_.log.clear();
  Unmap(kHere, kSlabBytes);
  EXPECT_THAT(fake_.log, ElementsAre("cuCtxPushCurrent", "cuCtxSynchronize",
                                     "cuCtxPopCurrent", "cuMemUnmap"));
}

TEST_F(VirtualMemoryTest, MappingMadeWithoutAContextIsAwaitedInThePrimaryOne) {
  StartDaemon();
  fake_.no_context = true;
  int primary = 0;
  for (void* const active : {static_cast<void*>(&primary), (void*)nullptr}) {
    const CUmemGenericAllocationHandle handle = NewHandle(kSlabBytes);
    ASSERT_EQ(Map(kHere, kSlabBytes, handle), driver::CUDA_SUCCESS);
    fake_.primary = static_cast<driver::CUcontext>(active);
    fake_.log.clear();
    ASSERT_EQ(Unmap(kHere, kSlabBytes), driver::CUDA_SUCCESS);
    EXPECT_EQ(Calls("cuCtxSynchronize"), active != nullptr ? 1 : 0);
    ASSERT_EQ(Release(handle), driver::CUDA_SUCCESS);
  }
  EXPECT_THAT(daemon_->returned(), ElementsAre(1, 2));
  EXPECT_EQ(fake_.primary_references, 0);
}

TEST_F(VirtualMemoryTest, MappingOutlivesItsContextAndItsSlabsComeBack) {
  StartDaemon();
  const CUmemGenericAllocationHandle handle = NewHandle(kSlabBytes);
  ASSERT_EQ(Map(kHere, kSlabBytes, handle), driver::CUDA_SUCCESS);
  driver::CUcontext made_in = nullptr;
  driver_.entry.cuCtxGetCurrent(&made_in);
  fake_.destroyed = {made_in};
  ASSERT_EQ(Unmap(kHere, kSlabBytes), driver::CUDA_SUCCESS);
  ASSERT_EQ(Release(handle), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), ElementsAre(1));
}

TEST_F(VirtualMemoryTest, SlabsOfAContextThatFailedNeverGoBack) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  Map(kHere, kSlabBytes, handle);
  fake_.fail = "cuCtxSynchronize";
  EXPECT_EQ(Unmap(kHere, kSlabBytes), driver::CUDA_SUCCESS);
  EXPECT_EQ(Release(handle), driver::CUDA_SUCCESS);
  EXPECT_THAT(daemon_->returned(), IsEmpty());
}

TEST_F(VirtualMemoryTest, PartOfAMappingCannotBeUnmapped) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  Map(kHere, kSlabBytes, handle);
  EXPECT_EQ(Unmap(kHere, kSlabBytes / 2), driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Unmap(kHere + kSlabBytes / 2, kSlabBytes),
            driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fake_.mapped_bytes, kSlabBytes);
}

TEST_F(VirtualMemoryTest, MappingMistakesAreRefusedAsTheDriverDoes) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  EXPECT_EQ(Map(kHere, kSlabBytes, handle, 2 * kMiB),
            driver::CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Map(kHere, 2 * kSlabBytes, handle),
            driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(kHere, 0, handle), driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(kHere, kMiB, handle), driver::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  Release(handle);
  EXPECT_TRUE(daemon_->GetsBack(100)) << "a failed mapping holds nothing";
}

TEST_F(VirtualMemoryTest, MappingThatFailsHalfwayIsUndone) {
  StartDaemon();
  const auto handle = NewHandle(2 * kSlabBytes);
  fake_.fail = "cuMemMap";
  fake_.fail_after = 2;
  fake_.fail_with = driver::CUDA_ERROR_ALREADY_MAPPED;
  EXPECT_EQ(Map(kHere, 2 * kSlabBytes, handle),
            driver::CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  EXPECT_FALSE(mappings_->MayHold(kHere));
}

TEST_F(VirtualMemoryTest, RetainedHandleIsTheProgramsAndCounts) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  Map(kHere, kSlabBytes, handle);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(Retain(kHere + 3 * kMiB, &again), driver::CUDA_SUCCESS);
  EXPECT_EQ(again, handle);
  Release(handle);
  Unmap(kHere, kSlabBytes);
  EXPECT_EQ(daemon_->free_slabs(), 99u);
  Release(again);
  EXPECT_TRUE(daemon_->GetsBack(100));
  EXPECT_EQ(Retain(kHere, &again), driver::CUDA_ERROR_NOT_FOUND)
      << "the driver answers";
}

TEST_F(VirtualMemoryTest, PropertiesAreThoseThatTheProgramAskedFor) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  CUmemAllocationProp prop = {};
  const auto original = [](const driver::EntryPoints&) {
    return driver::CUDA_ERROR_NOT_FOUND;
  };
  ASSERT_EQ(redirector_.virtual_memory().Properties(driver_.entry, &prop,
                                                    handle, Original(original)),
            driver::CUDA_SUCCESS);
  EXPECT_EQ(prop.location.type, driver::CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(prop.requestedHandleTypes, driver::CU_MEM_HANDLE_TYPE_NONE);
}

TEST_F(VirtualMemoryTest, ExportAndMulticastAreRefusedAndRecorded) {
  StartDaemon();
  const auto handle = NewHandle(kSlabBytes);
  const auto original = [](const driver::EntryPoints&) {
    return driver::CUDA_SUCCESS;
  };
  for (const Hook hook : {Hook::kMemExport, Hook::kMulticastBindMem}) {
    EXPECT_EQ(redirector_.ShareHandle(driver_.entry, hook, handle,
                                      Original(original)),
              driver::CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(LastDecision().reason, Reason::kShared);
    EXPECT_EQ(redirector_.ShareHandle(driver_.entry, hook, handle + 99,
                                      Original(original)),
              driver::CUDA_SUCCESS);
  }
}

// Pitfall 8: NCCL creates host memory, and does so without a context.
TEST_F(VirtualMemoryTest,
       Pitfall8WhatIsNoPlainDeviceMemoryPassesWithItsReason) {
  StartDaemon();
  struct {
    const char* name;
    void (*change)(CUmemAllocationProp*);
  } const cases[] = {
      {"host",
       [](CUmemAllocationProp* p) {
         p->location.type = driver::CU_MEM_LOCATION_TYPE_HOST;
       }},
      {"host_numa",
       [](CUmemAllocationProp* p) {
         p->location.type = driver::CU_MEM_LOCATION_TYPE_HOST_NUMA;
       }},
      {"fabric",
       [](CUmemAllocationProp* p) {
         p->requestedHandleTypes = driver::CU_MEM_HANDLE_TYPE_FABRIC;
       }},
      {"compressed",
       [](CUmemAllocationProp* p) { p->allocFlags.compressionType = 1; }},
      {"rdma",
       [](CUmemAllocationProp* p) { p->allocFlags.gpuDirectRDMACapable = 1; }},
  };
  for (const auto& c : cases) {
    CUmemAllocationProp prop = OnDevice();
    c.change(&prop);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(Create(kSlabBytes, &handle, prop), driver::CUDA_SUCCESS);
    EXPECT_TRUE(IsDrivers(handle)) << c.name;
    EXPECT_TRUE(daemon_->GetsBack(100)) << c.name;
    EXPECT_EQ(fake_.handles, 0) << c.name;
  }
  EXPECT_EQ(LastDecision().reason, Reason::kMemoryKind);
}

TEST_F(VirtualMemoryTest, Pitfall8NoContextIsNeeded) {
  StartDaemon();
  driver_.entry.cuCtxGetDevice = [](driver::CUdevice*) {
    return driver::CUDA_ERROR_INVALID_CONTEXT;
  };
  Release(NewHandle(kSlabBytes));
  EXPECT_TRUE(daemon_->GetsBack(100));
}

TEST_F(VirtualMemoryTest, RdmaIsServedWhereTheDeviceIsCapableOfIt) {
  StartDaemon();
  fake_.rdma_capable = true;
  CUmemAllocationProp prop = OnDevice();
  prop.allocFlags.gpuDirectRDMACapable = 1;
  CUmemGenericAllocationHandle handle = 0;
  Create(kSlabBytes, &handle, prop);
  EXPECT_FALSE(IsDrivers(handle));
}

TEST_F(VirtualMemoryTest, SizesThatSlabsDoNotFitPassWithTheirReason) {
  StartDaemon();
  // A last slab that is less than half used would be a waste.
  const struct {
    size_t bytes;
    bool slabs;
  } cases[] = {{kSlabBytes, true},
               {2 * kMiB, true},
               {3 * kSlabBytes - 2 * kMiB, true},
               {kSlabBytes + kMiB, false},
               {kMiB, false}};
  for (const auto& c : cases) {
    CUmemGenericAllocationHandle handle = 0;
    Create(c.bytes, &handle);
    EXPECT_EQ(!IsDrivers(handle), c.slabs) << c.bytes;
    if (!c.slabs) {
      EXPECT_EQ(LastDecision().reason, Reason::kSlabSize);
    }
  }
}

TEST_F(VirtualMemoryTest, SmallHandlesOfLargeSlabsPass) {
  StartDaemon({.granules_per_slab = 64});  // 128 MiB
  CUmemGenericAllocationHandle handle = 0;
  Create(20 * kMiB, &handle);  // an expandable segment's
  EXPECT_TRUE(IsDrivers(handle));
  EXPECT_EQ(LastDecision().reason, Reason::kSlabSize);
}

TEST_F(VirtualMemoryTest, ExhaustedPoolIsOutOfMemory) {
  StartDaemon({.slab_count = 1});
  CUmemGenericAllocationHandle handle = 7;
  EXPECT_EQ(Create(2 * kSlabBytes, &handle), driver::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(handle, 7u);
}

TEST_F(VirtualMemoryTest, ImportThatFailsHalfwayIsUndoneAndPasses) {
  StartDaemon();
  fake_.fail = "cuMemImport";
  fake_.fail_after = 3;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Create(2 * kSlabBytes, &handle), driver::CUDA_SUCCESS);
  EXPECT_TRUE(IsDrivers(handle));
  EXPECT_EQ(fake_.handles, 0);
  EXPECT_TRUE(daemon_->GetsBack(100));
}

}  // namespace
}  // namespace fineserve::shim
