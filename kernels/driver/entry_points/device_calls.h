#ifndef KERNELS_DRIVER_ENTRY_POINTS_DEVICE_CALLS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_DEVICE_CALLS_H_

// Functions to start the driver, find its functions, and handle devices and
// contexts. Columns: kernels/driver/entry_points.h.

// clang-format off
#define FINESERVE_DRIVER_DEVICE_ENTRY_POINTS(X)                                \
  /* Initialisation, resolution, errors */                                     \
  X(cuInit,                     cuInit,                      2000, kRequired,  \
    (unsigned int flags))                                                      \
  X(cuDriverGetVersion,         cuDriverGetVersion,          2020, kRequired,  \
    (int* version))                                                            \
  X(cuGetErrorName,             cuGetErrorName,              6000, kRequired,  \
    (CUresult error, const char** name))                                       \
  X(cuGetErrorString,           cuGetErrorString,            6000, kRequired,  \
    (CUresult error, const char** text))                                       \
  X(cuGetProcAddress,           cuGetProcAddress,           11030, kOptional,  \
    (const char* symbol, void** pfn, int cuda_version, uint64_t flags))        \
  X(cuGetProcAddress_v2,        cuGetProcAddress,           12000, kOptional,  \
    (const char* symbol, void** pfn, int cuda_version, uint64_t flags,         \
     CUdriverProcAddressQueryResult* status))                                  \
  X(cuGetExportTable,           cuGetExportTable,            3000, kOptional,  \
    (const void** table, const CUuuid* id))                                    \
  /* Devices and contexts */                                                   \
  X(cuDeviceGet,                cuDeviceGet,                 2000, kRequired,  \
    (CUdevice* device, int ordinal))                                           \
  X(cuDeviceGetCount,           cuDeviceGetCount,            2000, kRequired,  \
    (int* count))                                                              \
  X(cuDeviceGetName,            cuDeviceGetName,             2000, kRequired,  \
    (char* name, int capacity, CUdevice device))                               \
  X(cuDeviceGetUuid,            cuDeviceGetUuid,             9020, kOptional,  \
    (CUuuid* uuid, CUdevice device))                                           \
  X(cuDeviceGetUuid_v2,         cuDeviceGetUuid,            11040, kRequired,  \
    (CUuuid* uuid, CUdevice device))                                           \
  X(cuDeviceGetAttribute,       cuDeviceGetAttribute,        2000, kRequired,  \
    (int* value, CUdevice_attribute attribute, CUdevice device))               \
  X(cuDeviceTotalMem_v2,        cuDeviceTotalMem,            3020, kRequired,  \
    (size_t* bytes, CUdevice device))                                          \
  X(cuDeviceGetPCIBusId,        cuDeviceGetPCIBusId,         4010, kOptional,  \
    (char* pci_bus_id, int capacity, CUdevice device))                         \
  X(cuDevicePrimaryCtxRetain,   cuDevicePrimaryCtxRetain,    7000, kRequired,  \
    (CUcontext* context, CUdevice device))                                     \
  X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, kRequired, \
    (CUdevice device))                                                         \
  X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset,    11000, kOptional,  \
    (CUdevice device))                                                         \
  X(cuDevicePrimaryCtxSetFlags_v2,                                             \
    cuDevicePrimaryCtxSetFlags, 11000, kOptional,                              \
    (CUdevice device, unsigned int flags))                                     \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState,  7000, kOptional,  \
    (CUdevice device, unsigned int* flags, int* active))                       \
  X(cuCtxCreate_v2,             cuCtxCreate,                 3020, kOptional,  \
    (CUcontext* context, unsigned int flags, CUdevice device))                 \
  X(cuCtxCreate_v3,             cuCtxCreate,                11040, kOptional,  \
    (CUcontext* context, CUexecAffinityParam* params, int param_count,         \
     unsigned int flags, CUdevice device))                                     \
  X(cuCtxCreate_v4,             cuCtxCreate,                12050, kOptional,  \
    (CUcontext* context, CUctxCreateParams* params, unsigned int flags,        \
     CUdevice device))                                                         \
  X(cuCtxDestroy_v2,            cuCtxDestroy,                4000, kOptional,  \
    (CUcontext context))                                                       \
  X(cuCtxPushCurrent_v2,        cuCtxPushCurrent,            4000, kRequired,  \
    (CUcontext context))                                                       \
  X(cuCtxPopCurrent_v2,         cuCtxPopCurrent,             4000, kRequired,  \
    (CUcontext* context))                                                      \
  X(cuCtxSetCurrent,            cuCtxSetCurrent,             4000, kRequired,  \
    (CUcontext context))                                                       \
  X(cuCtxGetCurrent,            cuCtxGetCurrent,             4000, kRequired,  \
    (CUcontext* context))                                                      \
  X(cuCtxGetDevice,             cuCtxGetDevice,              2000, kRequired,  \
    (CUdevice* device))                                                        \
  X(cuCtxGetDevice_v2,          cuCtxGetDevice,             13000, kOptional,  \
    (CUdevice* device, CUcontext context))                                     \
  X(cuCtxSynchronize,           cuCtxSynchronize,            2000, kRequired,  \
    (void))                                                                    \
  X(cuCtxSynchronize_v2,        cuCtxSynchronize,           13000, kOptional,  \
    (CUcontext context))                                                       \
  X(cuDevicePrimaryCtxRelease,  cuDevicePrimaryCtxRelease,   7000, kOptional,  \
    (CUdevice device))                                                         \
  X(cuDevicePrimaryCtxReset,    cuDevicePrimaryCtxReset,     7000, kOptional,  \
    (CUdevice device))                                                         \
  X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags,  7000, kOptional,  \
    (CUdevice device, unsigned int flags))                                     \
  X(cuDeviceGetByPCIBusId,      cuDeviceGetByPCIBusId,       4010, kOptional,  \
    (CUdevice* device, const char* pci_bus_id))                                \
  X(cuDeviceComputeCapability,  cuDeviceComputeCapability,   2000, kOptional,  \
    (int* major, int* minor, CUdevice device))                                 \
  X(cuDeviceCanAccessPeer,      cuDeviceCanAccessPeer,       4000, kOptional,  \
    (int* can, CUdevice device, CUdevice peer))                                \
  X(cuDeviceGetP2PAttribute,    cuDeviceGetP2PAttribute,     8000, kOptional,  \
    (int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)) \
  X(cuCtxEnablePeerAccess,      cuCtxEnablePeerAccess,       4000, kOptional,  \
    (CUcontext peer, unsigned int flags))                                      \
  X(cuCtxDisablePeerAccess,     cuCtxDisablePeerAccess,      4000, kOptional,  \
    (CUcontext peer))                                                          \
  X(cuCtxGetFlags,              cuCtxGetFlags,               7000, kOptional,  \
    (unsigned int* flags))                                                     \
  X(cuCtxSetFlags,              cuCtxSetFlags,              12010, kOptional,  \
    (unsigned int flags))                                                      \
  X(cuCtxGetId,                 cuCtxGetId,                 12000, kOptional,  \
    (CUcontext context, unsigned long long* id))                               \
  X(cuCtxGetApiVersion,         cuCtxGetApiVersion,          3020, kOptional,  \
    (CUcontext context, unsigned int* version))                                \
  X(cuCtxGetLimit,              cuCtxGetLimit,               3010, kOptional,  \
    (size_t* value, CUlimit limit))                                            \
  X(cuCtxSetLimit,              cuCtxSetLimit,               3010, kOptional,  \
    (CUlimit limit, size_t value))                                             \
  X(cuCtxResetPersistingL2Cache,                                               \
    cuCtxResetPersistingL2Cache, 11000, kOptional,                             \
    (void))                                                                    \
  X(cuProfilerStart,            cuProfilerStart,             4000, kOptional,  \
    (void))                                                                    \
  X(cuProfilerStop,             cuProfilerStop,              4000, kOptional,  \
    (void))
// clang-format on

#endif  // KERNELS_DRIVER_ENTRY_POINTS_DEVICE_CALLS_H_
