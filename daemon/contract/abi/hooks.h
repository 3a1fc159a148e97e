#ifndef DAEMON_CONTRACT_ABI_HOOKS_H_
#define DAEMON_CONTRACT_ABI_HOOKS_H_

// The functions that the shim replaces. Their order is part of the engine
// scoreboard (engine_scoreboard.h): a hook's row number is its index there, so
// rows are only ever appended.
//
//   X(hook, symbol)

#include <cstdint>

// clang-format off
#define FINESERVE_HOOKS(X) \
  /* The dynamic loader's own */ \
  X(kDlsym, dlsym) \
  X(kDlvsym, dlvsym) \
  X(kDlopen, dlopen) \
  X(kDlmopen, dlmopen) \
  /* The driver's */ \
  X(kGetProcAddress, cuGetProcAddress) \
  X(kGetProcAddress2, cuGetProcAddress_v2) \
  X(kMemAlloc, cuMemAlloc_v2) \
  X(kMemFree, cuMemFree_v2) \
  X(kMemAllocPitch, cuMemAllocPitch_v2) \
  X(kMemAllocManaged, cuMemAllocManaged) \
  X(kMemAllocAsync, cuMemAllocAsync) \
  X(kMemAllocAsyncPtsz, cuMemAllocAsync_ptsz) \
  X(kMemAllocFromPool, cuMemAllocFromPoolAsync) \
  X(kMemAllocFromPoolPtsz, cuMemAllocFromPoolAsync_ptsz) \
  X(kMemFreeAsync, cuMemFreeAsync) \
  X(kMemFreeAsyncPtsz, cuMemFreeAsync_ptsz) \
  X(kMemCreate, cuMemCreate) \
  X(kMemRelease, cuMemRelease) \
  X(kMemMap, cuMemMap) \
  X(kMemUnmap, cuMemUnmap) \
  X(kMemExport, cuMemExportToShareableHandle) \
  X(kMemRetain, cuMemRetainAllocationHandle) \
  X(kMemProperties, cuMemGetAllocationPropertiesFromHandle) \
  X(kMemAddressRange, cuMemGetAddressRange_v2) \
  X(kPointerAttribute, cuPointerGetAttribute) \
  X(kPointerAttributes, cuPointerGetAttributes) \
  X(kIpcGetMemHandle, cuIpcGetMemHandle) \
  X(kHandleForRange, cuMemGetHandleForAddressRange) \
  X(kCtxSynchronize, cuCtxSynchronize) \
  X(kCtxSynchronize2, cuCtxSynchronize_v2) \
  X(kStreamSynchronize, cuStreamSynchronize) \
  X(kStreamSynchronizePtsz, cuStreamSynchronize_ptsz) \
  X(kStreamQuery, cuStreamQuery) \
  X(kStreamQueryPtsz, cuStreamQuery_ptsz) \
  X(kEventSynchronize, cuEventSynchronize) \
  X(kEventQuery, cuEventQuery) \
  X(kCtxDestroy, cuCtxDestroy_v2) \
  X(kPrimaryRelease, cuDevicePrimaryCtxRelease) \
  X(kPrimaryRelease2, cuDevicePrimaryCtxRelease_v2) \
  X(kPrimaryReset, cuDevicePrimaryCtxReset) \
  X(kPrimaryReset2, cuDevicePrimaryCtxReset_v2) \
  X(kPeerEnable, cuCtxEnablePeerAccess) \
  X(kPeerDisable, cuCtxDisablePeerAccess) \
  X(kPoolSetAccess, cuMemPoolSetAccess) \
  X(kMulticastBindMem, cuMulticastBindMem) \
  X(kMulticastBindAddr, cuMulticastBindAddr) \
  X(kInit, cuInit) \
  X(kIpcOpenMemHandle, cuIpcOpenMemHandle) \
  X(kIpcOpenMemHandle2, cuIpcOpenMemHandle_v2) \
  X(kIpcCloseMemHandle, cuIpcCloseMemHandle) \
  X(kPrimaryRetain, cuDevicePrimaryCtxRetain) \
  X(kCtxCreate2, cuCtxCreate_v2) \
  X(kCtxCreate3, cuCtxCreate_v3) \
  X(kCtxCreate4, cuCtxCreate_v4)
// clang-format on

namespace fineserve::abi {

enum class Hook : uint16_t {
  kNone = 0,
#define FINESERVE_HOOK(hook, symbol) hook,
  FINESERVE_HOOKS(FINESERVE_HOOK)
#undef FINESERVE_HOOK
};

// By Hook; [0] is kNone's.
inline constexpr const char* kHookSymbols[] = {"",
#define FINESERVE_SYMBOL(hook, symbol) #symbol,
                                               FINESERVE_HOOKS(FINESERVE_SYMBOL)
#undef FINESERVE_SYMBOL
};
inline constexpr uint32_t kHookCount =
    sizeof(kHookSymbols) / sizeof(kHookSymbols[0]);

// How a program got the address of a hook. A hook that was called without any
// of these paths was bound by the dynamic linker.
enum class Path : uint32_t {
  kDefault,    // dlsym(RTLD_DEFAULT)
  kHandle,     // dlsym with the handle of a library
  kNext,       // dlsym(RTLD_NEXT)
  kVersioned,  // dlvsym
  kResolver,   // cuGetProcAddress
  kResolver2,  // cuGetProcAddress_v2
  kCalled,     // was called; calls that the fast path handles do not count
};
inline constexpr uint32_t kPathCount = 7;

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_HOOKS_H_
