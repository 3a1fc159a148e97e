#include "shim/hooks/hook_table.h"

#include <gtest/gtest.h>

namespace fineserve::shim {
namespace {

struct Request {
  const char* name;
  int version;
  Hook hook;
  uint64_t flags = 0;
};

// A driver answers with the newest ABI that is not newer than the requested
// version.
constexpr Request kRequests[] = {
    {"cuMemAlloc", 2000, Hook::kNone},
    {"cuMemAlloc", 3010, Hook::kNone},
    {"cuMemAlloc", 3020, Hook::kMemAlloc},
    {"cuMemAlloc", 13000, Hook::kMemAlloc},
    {"cuMemFree", 3019, Hook::kNone},
    {"cuMemFree", 3020, Hook::kMemFree},
    {"cuGetProcAddress", 11020, Hook::kNone},
    {"cuGetProcAddress", 11030, Hook::kGetProcAddress},
    {"cuGetProcAddress", 11999, Hook::kGetProcAddress},
    {"cuGetProcAddress", 12000, Hook::kGetProcAddress2},
    {"cuGetProcAddress", 13000, Hook::kGetProcAddress2},
    {"cuMemAllocHost", 13000, Hook::kNone},
    {"cuMemAllocPitch", 3010, Hook::kNone},
    {"cuMemAllocPitch", 3020, Hook::kMemAllocPitch},
    {"cuMemAllocManaged", 6000, Hook::kMemAllocManaged},
    {"cuMemAllocAsync", 11010, Hook::kNone},
    {"cuMemAllocAsync", 11020, Hook::kMemAllocAsync},
    {"cuMemAllocAsync", 11020, Hook::kMemAllocAsyncPtsz, 2},
    {"cuMemAllocAsync", 11020, Hook::kMemAllocAsync, 1},
    {"cuMemAllocFromPoolAsync", 11020, Hook::kMemAllocFromPool},
    {"cuMemAllocFromPoolAsync", 11020, Hook::kMemAllocFromPoolPtsz, 2},
    {"cuMemFreeAsync", 11020, Hook::kMemFreeAsync},
    {"cuMemFreeAsync", 13000, Hook::kMemFreeAsyncPtsz, 2},
    {"cuMemAlloc", 3020, Hook::kMemAlloc, 2},  // it has no variant
    {"cuMemAlloc_v2", 0, Hook::kMemAlloc},
    {"cuCtxSynchronize", 2000, Hook::kCtxSynchronize},
    {"cuCtxSynchronize", 12090, Hook::kCtxSynchronize},
    {"cuCtxSynchronize", 13000, Hook::kCtxSynchronize2},
    {"cuStreamSynchronize", 7000, Hook::kStreamSynchronizePtsz, 2},
    {"cuStreamSynchronize", 2000, Hook::kStreamSynchronize},
    {"cuStreamQuery", 7000, Hook::kStreamQueryPtsz, 2},
    {"cuEventQuery", 2000, Hook::kEventQuery, 2},
    {"cuEventSynchronize", 2000, Hook::kEventSynchronize},
    {"cuCtxCreate", 3020, Hook::kCtxCreate2},
    {"cuCtxCreate", 12000, Hook::kCtxCreate3},
    {"cuCtxCreate", 13000, Hook::kCtxCreate4},
    {"cuCtxDestroy", 4000, Hook::kCtxDestroy},
    {"cuDevicePrimaryCtxRetain", 7000, Hook::kPrimaryRetain},
    {"cuDevicePrimaryCtxRelease", 7000, Hook::kPrimaryRelease},
    {"cuDevicePrimaryCtxRelease", 11000, Hook::kPrimaryRelease2},
    {"cuDevicePrimaryCtxReset", 7000, Hook::kPrimaryReset},
    {"cuDevicePrimaryCtxReset", 12080, Hook::kPrimaryReset2},
    {"cuMulticastBindMem", 12010, Hook::kMulticastBindMem},
    {"cuMulticastBindAddr", 12010, Hook::kMulticastBindAddr},
    {"cuCtxEnablePeerAccess", 4000, Hook::kPeerEnable},
    {"cuCtxDisablePeerAccess", 4000, Hook::kPeerDisable},
    {"cuMemPoolSetAccess", 11020, Hook::kPoolSetAccess},
    {"cuInit", 13000, Hook::kInit},
    {"cuDeviceGet", 13000, Hook::kNone},
    {"dlsym", 13000, Hook::kNone},
    {"", 0, Hook::kNone},
};

TEST(HookTable, RequestIsHookedOnlyWhereTheAbiIsOurs) {
  for (const Request& r : kRequests) {
    EXPECT_EQ(HookForRequest(r.name, r.version, r.flags), r.hook)
        << r.name << " asked with version " << r.version;
  }
}

TEST(HookTable, SymbolIsHookedByItsWholeName) {
  EXPECT_EQ(HookForSymbol("cuMemAlloc_v2"), Hook::kMemAlloc);
  EXPECT_EQ(HookForSymbol("cuMemFree_v2"), Hook::kMemFree);
  EXPECT_EQ(HookForSymbol("cuGetProcAddress"), Hook::kGetProcAddress);
  EXPECT_EQ(HookForSymbol("cuGetProcAddress_v2"), Hook::kGetProcAddress2);
  EXPECT_EQ(HookForSymbol("dlsym"), Hook::kDlsym);
  EXPECT_EQ(HookForSymbol("dlvsym"), Hook::kDlvsym);
  EXPECT_EQ(HookForSymbol("dlopen"), Hook::kDlopen);
  EXPECT_EQ(HookForSymbol("dlmopen"), Hook::kDlmopen);
  for (const char* other : {"cuMemAlloc", "cuMemFree", "cuMemAlloc_v22",
                            "cuMem", "dlsymx", "malloc", "c", ""}) {
    EXPECT_EQ(HookForSymbol(other), Hook::kNone) << other;
  }
}

}  // namespace
}  // namespace fineserve::shim
