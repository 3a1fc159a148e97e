#include "shim/weights/gated_calls.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/driver/entry_points.h"
#include "shim/weights/gated_lookup.h"

namespace fineserve::shim {
namespace {

using driver::CUdeviceptr;
using driver::CUstream;
using driver::EntryPoints;

// True for a function that takes a stream to work on, or an address of device
// memory: it may touch memory until someone has said that it does not.
template <typename Function>
struct Suspicion;
template <typename... Arguments>
struct Suspicion<driver::CUresult (*EntryPoints::*)(Arguments...)> {
  static constexpr bool kValue = ((std::is_same_v<Arguments, CUstream> ||
                                   std::is_same_v<Arguments, CUdeviceptr>) ||
                                  ...);
};

struct Row {
  const char* symbol;
  bool suspicious;
};

constexpr Row kRows[] = {
#define FINESERVE_ROW(symbol, name, since, need, args) \
  {#symbol, Suspicion<decltype(&EntryPoints::symbol)>::kValue},
    FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
#define FINESERVE_ROW(plain, variant, name, since, args, call) \
  {#plain "_" #variant,                                        \
   Suspicion<decltype(&EntryPoints::plain##_##variant)>::kValue},
        FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
};

// They take a stream or an address, and touch no memory that can move.
const std::set<std::string> kTouchNothing = {
    // Frees and allocations in stream order: pools do not move.
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    // Mappings, and questions about addresses.
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetAccess",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMulticastBindAddr",
    "cuMemGetAddressRange_v2",
    "cuMemGetHandleForAddressRange",
    "cuMemAdvise",
    "cuMemAdvise_v2",
    "cuMemRangeGetAttribute",
    "cuMemRangeGetAttributes",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuPointerSetAttribute",
    "cuIpcGetMemHandle",
    "cuIpcCloseMemHandle",
    "cuMemPoolExportPointer",
    // Order between streams, and what they are.
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuStreamGetPriority",
    "cuStreamGetFlags",
    "cuStreamGetId",
    "cuStreamGetCtx",
    "cuStreamGetDevice",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3",
    // Functions on the host; memory that the host reads by itself.
    "cuLaunchHostFunc",
    "cuStreamAddCallback",
    "cuStreamAttachMemAsync",
    // Writes a descriptor on the host.
    "cuTensorMapEncodeTiled",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapReplaceAddress",
    // Handles and flags have the type of an address.
    "cuGraphInstantiateWithFlags",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemExportToShareableHandle",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMulticastBindMem",
    "cuMemPoolExportToShareableHandle",
    "cuMemPoolImportFromShareableHandle",
};

std::string WithoutVariant(std::string symbol) {
  for (const char* variant : {"_ptsz", "_ptds"}) {
    const size_t at = symbol.rfind(variant);
    if (at != std::string::npos) symbol.resize(at);
  }
  return symbol;
}

bool IsGated(const std::string& symbol) {
  return GatedForSymbol(symbol.c_str()) != GatedCall::kNone;
}

bool IsNamedAsATouch(const std::string& symbol) {
  for (const char* begin :
       {"cuMemcpy", "cuMemset", "cuLaunchKernel", "cuLaunchCooperative",
        "cuGraphLaunch", "cuStreamWriteValue", "cuStreamWaitValue",
        "cuStreamBatchMemOp", "cuMemPrefetch", "cuMemDiscard"}) {
    if (symbol.rfind(begin, 0) == 0) return true;
  }
  return false;
}

TEST(GatedCallsTest, EachEntryPointThatMayTouchMemoryIsGatedOrExcused) {
  for (const Row& row : kRows) {
    const bool excused = kTouchNothing.count(WithoutVariant(row.symbol)) != 0;
    if (row.suspicious || IsNamedAsATouch(row.symbol)) {
      EXPECT_NE(IsGated(row.symbol), excused)
          << row.symbol << " takes a stream or an address: gate it, or say in "
          << "kTouchNothing why not";
    } else {
      EXPECT_EQ(IsGated(row.symbol), false) << row.symbol;
    }
  }
}

TEST(GatedCallsTest, GatedCallsAndTheirVariantsAreEntryPoints) {
  std::set<std::string> known;
  for (const Row& row : kRows) known.insert(row.symbol);
#define FINESERVE_GATED(symbol) EXPECT_EQ(known.count(#symbol), 1u) << #symbol;
  FINESERVE_GATED_CALLS(FINESERVE_GATED)
#undef FINESERVE_GATED
}

TEST(GatedCallsTest, RequestMeansTheNewestAbiOfItsVersionAndStream) {
  constexpr uint64_t kPerThread =
      driver::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(GatedForRequest("cuMemcpyHtoD", 3020, 0),
            GatedCall::k_cuMemcpyHtoD_v2);
  EXPECT_EQ(GatedForRequest("cuMemcpyHtoD", 12000, kPerThread),
            GatedCall::k_cuMemcpyHtoD_v2_ptds);
  EXPECT_EQ(GatedForRequest("cuMemcpyBatchAsync", 12080, 0),
            GatedCall::k_cuMemcpyBatchAsync);
  EXPECT_EQ(GatedForRequest("cuMemcpyBatchAsync", 13000, 0),
            GatedCall::k_cuMemcpyBatchAsync_v2);
  EXPECT_EQ(GatedForRequest("cuLaunchKernel", 13000, kPerThread),
            GatedCall::k_cuLaunchKernel_ptsz);
  EXPECT_EQ(GatedForRequest("cuMemAlloc", 13000, 0), GatedCall::kNone);
  EXPECT_EQ(GatedForRequest("cuNoSuchThing", 13000, 0), GatedCall::kNone);
  // Before 3.2 addresses had 32 bits.
  EXPECT_EQ(GatedForRequest("cuMemcpyHtoD", 3000, 0), GatedCall::kNone);
}

}  // namespace
}  // namespace fineserve::shim
