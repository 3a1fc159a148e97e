#ifndef TOOLS_LAB_DEVICE_NCCL_UNSUPPORTED_LIST_H_
#define TOOLS_LAB_DEVICE_NCCL_UNSUPPORTED_LIST_H_

// X(name): functions of NCCL 2.29 that exist, so that programs that import them
// can load, but are not emulated: kernels that communicate by themselves,
// one-sided access to a peer's memory, communicators that change in size or are
// suspended. They return ncclInvalidUsage, and the first call of each prints
// one line on stderr.
// clang-format off
#define EMUCUDA_UNSUPPORTED_NCCL_API(X) \
  X(ncclCommGetUniqueId) \
  X(ncclCommGrow) \
  X(ncclCommMemStats) \
  X(ncclCommQueryProperties) \
  X(ncclCommResume) \
  X(ncclCommRevoke) \
  X(ncclCommShrink) \
  X(ncclCommSuspend) \
  X(ncclCommWindowDeregister) \
  X(ncclCommWindowRegister) \
  X(ncclDevCommCreate) \
  X(ncclDevCommDestroy) \
  X(ncclGetLsaDevicePointer) \
  X(ncclGetLsaMultimemDevicePointer) \
  X(ncclGetMultimemDevicePointer) \
  X(ncclGetPeerDevicePointer) \
  X(ncclGroupSimulateEnd) \
  X(ncclPutSignal) \
  X(ncclSignal) \
  X(ncclWaitSignal) \
  X(ncclWinGetUserPtr)
// clang-format on

#endif  // TOOLS_LAB_DEVICE_NCCL_UNSUPPORTED_LIST_H_
