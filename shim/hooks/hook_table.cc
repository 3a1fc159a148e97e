#include "shim/hooks/hook_table.h"

#include <string.h>

#include <climits>

#include "kernels/driver/cuda_types.h"
#include "shim/host/same_text.h"

namespace fineserve::shim {
namespace {

struct RequestRow {
  const char* name;
  int since;  // the first CUDA version that answers with this ABI
  int until;  // the last CUDA version that does
  Hook hook;
  Hook per_thread = Hook::kNone;  // its per-thread variant, if it has one
};

constexpr RequestRow kRequests[] = {
    {"cuInit", 2000, INT_MAX, Hook::kInit},
    {"cuMemAlloc", 3020, INT_MAX, Hook::kMemAlloc},
    {"cuMemFree", 3020, INT_MAX, Hook::kMemFree},
    {"cuMemAllocPitch", 3020, INT_MAX, Hook::kMemAllocPitch},
    {"cuMemAllocManaged", 6000, INT_MAX, Hook::kMemAllocManaged},
    {"cuMemAllocAsync", 11020, INT_MAX, Hook::kMemAllocAsync,
     Hook::kMemAllocAsyncPtsz},
    {"cuMemAllocFromPoolAsync", 11020, INT_MAX, Hook::kMemAllocFromPool,
     Hook::kMemAllocFromPoolPtsz},
    {"cuMemFreeAsync", 11020, INT_MAX, Hook::kMemFreeAsync,
     Hook::kMemFreeAsyncPtsz},
    {"cuMemCreate", 10020, INT_MAX, Hook::kMemCreate},
    {"cuMemRelease", 10020, INT_MAX, Hook::kMemRelease},
    {"cuMemMap", 10020, INT_MAX, Hook::kMemMap},
    {"cuMemUnmap", 10020, INT_MAX, Hook::kMemUnmap},
    {"cuMemExportToShareableHandle", 10020, INT_MAX, Hook::kMemExport},
    {"cuMemRetainAllocationHandle", 11000, INT_MAX, Hook::kMemRetain},
    {"cuMemGetAllocationPropertiesFromHandle", 10020, INT_MAX,
     Hook::kMemProperties},
    {"cuMemGetAddressRange", 3020, INT_MAX, Hook::kMemAddressRange},
    {"cuPointerGetAttribute", 4000, INT_MAX, Hook::kPointerAttribute},
    {"cuPointerGetAttributes", 7000, INT_MAX, Hook::kPointerAttributes},
    {"cuIpcGetMemHandle", 4010, INT_MAX, Hook::kIpcGetMemHandle},
    {"cuIpcOpenMemHandle", 4010, 10999, Hook::kIpcOpenMemHandle},
    {"cuIpcOpenMemHandle", 11000, INT_MAX, Hook::kIpcOpenMemHandle2},
    {"cuIpcCloseMemHandle", 4010, INT_MAX, Hook::kIpcCloseMemHandle},
    {"cuMemGetHandleForAddressRange", 11070, INT_MAX, Hook::kHandleForRange},
    {"cuCtxSynchronize", 2000, 12999, Hook::kCtxSynchronize},
    {"cuCtxSynchronize", 13000, INT_MAX, Hook::kCtxSynchronize2},
    {"cuStreamSynchronize", 2000, INT_MAX, Hook::kStreamSynchronize,
     Hook::kStreamSynchronizePtsz},
    {"cuStreamQuery", 2000, INT_MAX, Hook::kStreamQuery,
     Hook::kStreamQueryPtsz},
    {"cuEventSynchronize", 2000, INT_MAX, Hook::kEventSynchronize},
    {"cuEventQuery", 2000, INT_MAX, Hook::kEventQuery},
    {"cuCtxCreate", 3020, 11039, Hook::kCtxCreate2},
    {"cuCtxCreate", 11040, 12049, Hook::kCtxCreate3},
    {"cuCtxCreate", 12050, INT_MAX, Hook::kCtxCreate4},
    {"cuCtxDestroy", 4000, INT_MAX, Hook::kCtxDestroy},
    {"cuDevicePrimaryCtxRetain", 7000, INT_MAX, Hook::kPrimaryRetain},
    {"cuDevicePrimaryCtxRelease", 7000, 10999, Hook::kPrimaryRelease},
    {"cuDevicePrimaryCtxRelease", 11000, INT_MAX, Hook::kPrimaryRelease2},
    {"cuDevicePrimaryCtxReset", 7000, 10999, Hook::kPrimaryReset},
    {"cuDevicePrimaryCtxReset", 11000, INT_MAX, Hook::kPrimaryReset2},
    {"cuCtxEnablePeerAccess", 4000, INT_MAX, Hook::kPeerEnable},
    {"cuCtxDisablePeerAccess", 4000, INT_MAX, Hook::kPeerDisable},
    {"cuMemPoolSetAccess", 11020, INT_MAX, Hook::kPoolSetAccess},
    {"cuMulticastBindMem", 12010, INT_MAX, Hook::kMulticastBindMem},
    {"cuMulticastBindAddr", 12010, INT_MAX, Hook::kMulticastBindAddr},
    {"cuGetProcAddress", 11030, 11999, Hook::kGetProcAddress},
    {"cuGetProcAddress", 12000, INT_MAX, Hook::kGetProcAddress2},
};

}  // namespace

bool IsLoaders(Hook hook) {
  return hook >= Hook::kDlsym && hook <= Hook::kDlmopen;
}

Hook HookForSymbol(const char* symbol) {
  const bool candidate = (symbol[0] == 'c' && symbol[1] == 'u') ||
                         (symbol[0] == 'd' && symbol[1] == 'l');
  if (!candidate) return Hook::kNone;
  for (uint32_t i = 1; i < abi::kHookCount; ++i) {
    if (SameText(abi::kHookSymbols[i], symbol)) return static_cast<Hook>(i);
  }
  return Hook::kNone;
}

namespace {

// Names with a suffix, such as "cuMemAlloc_v2", are not documented as requests.
// A driver that answers one anyway can only mean the ABI of that name.
Hook HookForSuffixedRequest(const char* name) {
  return strstr(name, "_v") != nullptr || strstr(name, "_pt") != nullptr
             ? HookForSymbol(name)
             : Hook::kNone;
}

bool WantsPerThread(uint64_t flags) {
  return flags == driver::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

}  // namespace

Hook HookForRequest(const char* name, int cuda_version, uint64_t flags) {
  if (name[0] != 'c' || name[1] != 'u') return Hook::kNone;
  for (const RequestRow& row : kRequests) {
    if (cuda_version >= row.since && cuda_version <= row.until &&
        SameText(row.name, name)) {
      const bool variant =
          WantsPerThread(flags) && row.per_thread != Hook::kNone;
      return variant ? row.per_thread : row.hook;
    }
  }
  return HookForSuffixedRequest(name);
}

}  // namespace fineserve::shim
