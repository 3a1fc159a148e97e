#ifndef KERNELS_DRIVER_ENTRY_POINTS_MEMORY_CALLS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_MEMORY_CALLS_H_

// Functions to allocate, map, share and query memory. Columns:
// kernels/driver/entry_points.h.

// clang-format off
#define FINESERVE_DRIVER_MEMORY_ENTRY_POINTS(X)                                \
  /* Legacy allocation */                                                      \
  X(cuMemAlloc_v2,              cuMemAlloc,                  3020, kRequired,  \
    (CUdeviceptr* address, size_t bytes))                                      \
  X(cuMemAllocPitch_v2,         cuMemAllocPitch,             3020, kOptional,  \
    (CUdeviceptr* address, size_t* pitch, size_t width_bytes, size_t rows,     \
     unsigned int element_bytes))                                              \
  X(cuMemFree_v2,               cuMemFree,                   3020, kRequired,  \
    (CUdeviceptr address))                                                     \
  X(cuMemGetInfo_v2,            cuMemGetInfo,                3020, kRequired,  \
    (size_t* free_bytes, size_t* total_bytes))                                 \
  X(cuMemGetAddressRange_v2,    cuMemGetAddressRange,        3020, kRequired,  \
    (CUdeviceptr* base, size_t* bytes, CUdeviceptr address))                   \
  X(cuMemAllocHost_v2,          cuMemAllocHost,              3020, kOptional,  \
    (void** host, size_t bytes))                                               \
  X(cuMemHostAlloc,             cuMemHostAlloc,              2020, kOptional,  \
    (void** host, size_t bytes, unsigned int flags))                           \
  X(cuMemFreeHost,              cuMemFreeHost,               2000, kOptional,  \
    (void* host))                                                              \
  X(cuMemAllocManaged,          cuMemAllocManaged,           6000, kOptional,  \
    (CUdeviceptr* address, size_t bytes, unsigned int flags))                  \
  X(cuMemHostRegister_v2,       cuMemHostRegister,           6050, kOptional,  \
    (void* host, size_t bytes, unsigned int flags))                            \
  X(cuMemHostUnregister,        cuMemHostUnregister,         4000, kOptional,  \
    (void* host))                                                              \
  X(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020, kOptional,  \
    (CUdeviceptr* address, void* host, unsigned int flags))                    \
  X(cuMemHostGetFlags,          cuMemHostGetFlags,           2030, kOptional,  \
    (unsigned int* flags, void* host))                                         \
  X(cuMemGetHandleForAddressRange,                                             \
    cuMemGetHandleForAddressRange, 11070, kOptional,                           \
    (void* handle, CUdeviceptr address, size_t bytes,                          \
     CUmemRangeHandleType type, unsigned long long flags))                     \
  X(cuMemPrefetchAsync,         cuMemPrefetchAsync,          8000, kOptional,  \
    (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream))     \
  X(cuMemPrefetchAsync_v2,      cuMemPrefetchAsync,         12020, kOptional,  \
    (CUdeviceptr address, size_t bytes, CUmemLocation location,                \
     unsigned int flags, CUstream stream))                                     \
  X(cuMemAdvise,                cuMemAdvise,                 8000, kOptional,  \
    (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)) \
  X(cuMemAdvise_v2,             cuMemAdvise,                12020, kOptional,  \
    (CUdeviceptr address, size_t bytes, CUmem_advise advice,                   \
     CUmemLocation location))                                                  \
  X(cuMemRangeGetAttribute,     cuMemRangeGetAttribute,      8000, kOptional,  \
    (void* value, size_t value_bytes, CUmem_range_attribute attribute,         \
     CUdeviceptr address, size_t bytes))                                       \
  X(cuMemRangeGetAttributes,    cuMemRangeGetAttributes,     8000, kOptional,  \
    (void** values, size_t* value_bytes, CUmem_range_attribute* attributes,    \
     size_t count, CUdeviceptr address, size_t bytes))                         \
  X(cuMemPrefetchBatchAsync,    cuMemPrefetchBatchAsync,    13000, kOptional,  \
    (CUdeviceptr* addresses, size_t* bytes, size_t count,                      \
     CUmemLocation* locations, size_t* location_starts, size_t location_count, \
     unsigned long long flags, CUstream stream))                               \
  X(cuMemDiscardBatchAsync,     cuMemDiscardBatchAsync,     13000, kOptional,  \
    (CUdeviceptr* addresses, size_t* bytes, size_t count,                      \
     unsigned long long flags, CUstream stream))                               \
  X(cuMemDiscardAndPrefetchBatchAsync,                                         \
    cuMemDiscardAndPrefetchBatchAsync, 13000, kOptional,                       \
    (CUdeviceptr* addresses, size_t* bytes, size_t count,                      \
     CUmemLocation* locations, size_t* location_starts, size_t location_count, \
     unsigned long long flags, CUstream stream))                               \
  /* Virtual memory management */                                              \
  X(cuMemGetAllocationGranularity,                                             \
    cuMemGetAllocationGranularity, 10020, kRequired,                           \
    (size_t* bytes, const CUmemAllocationProp* prop,                           \
     CUmemAllocationGranularity_flags option))                                 \
  X(cuMemCreate,                cuMemCreate,                10020, kRequired,  \
    (CUmemGenericAllocationHandle* handle, size_t bytes,                       \
     const CUmemAllocationProp* prop, unsigned long long flags))               \
  X(cuMemRelease,               cuMemRelease,               10020, kRequired,  \
    (CUmemGenericAllocationHandle handle))                                     \
  X(cuMemAddressReserve,        cuMemAddressReserve,        10020, kRequired,  \
    (CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wanted, \
     unsigned long long flags))                                                \
  X(cuMemAddressFree,           cuMemAddressFree,           10020, kRequired,  \
    (CUdeviceptr address, size_t bytes))                                       \
  X(cuMemMap,                   cuMemMap,                   10020, kRequired,  \
    (CUdeviceptr address, size_t bytes, size_t offset,                         \
     CUmemGenericAllocationHandle handle, unsigned long long flags))           \
  X(cuMemUnmap,                 cuMemUnmap,                 10020, kRequired,  \
    (CUdeviceptr address, size_t bytes))                                       \
  X(cuMemSetAccess,             cuMemSetAccess,             10020, kRequired,  \
    (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* desc,           \
     size_t count))                                                            \
  X(cuMemGetAccess,             cuMemGetAccess,             10020, kOptional,  \
    (unsigned long long* flags, const CUmemLocation* location,                 \
     CUdeviceptr address))                                                     \
  X(cuMemExportToShareableHandle,                                              \
    cuMemExportToShareableHandle, 10020, kRequired,                            \
    (void* shareable, CUmemGenericAllocationHandle handle,                     \
     CUmemAllocationHandleType type, unsigned long long flags))                \
  X(cuMemImportFromShareableHandle,                                            \
    cuMemImportFromShareableHandle, 10020, kRequired,                          \
    (CUmemGenericAllocationHandle* handle, void* shareable,                    \
     CUmemAllocationHandleType type))                                          \
  X(cuMemGetAllocationPropertiesFromHandle,                                    \
    cuMemGetAllocationPropertiesFromHandle, 10020, kOptional,                  \
    (CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle))          \
  X(cuMemRetainAllocationHandle,                                               \
    cuMemRetainAllocationHandle, 11000, kOptional,                             \
    (CUmemGenericAllocationHandle* handle, void* address))                     \
  X(cuMulticastBindMem,         cuMulticastBindMem,         12010, kOptional,  \
    (CUmemGenericAllocationHandle multicast, size_t multicast_offset,          \
     CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,         \
     unsigned long long flags))                                                \
  X(cuMulticastBindAddr,        cuMulticastBindAddr,        12010, kOptional,  \
    (CUmemGenericAllocationHandle multicast, size_t multicast_offset,          \
     CUdeviceptr address, size_t bytes, unsigned long long flags))             \
  /* Stream-ordered allocation */                                              \
  X(cuMemAllocAsync,            cuMemAllocAsync,            11020, kOptional,  \
    (CUdeviceptr* address, size_t bytes, CUstream stream))                     \
  X(cuMemAllocFromPoolAsync,    cuMemAllocFromPoolAsync,    11020, kOptional,  \
    (CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream))  \
  X(cuMemFreeAsync,             cuMemFreeAsync,             11020, kOptional,  \
    (CUdeviceptr address, CUstream stream))                                    \
  X(cuMemPoolCreate,            cuMemPoolCreate,            11020, kOptional,  \
    (CUmemoryPool* pool, const CUmemPoolProps* props))                         \
  X(cuMemPoolDestroy,           cuMemPoolDestroy,           11020, kOptional,  \
    (CUmemoryPool pool))                                                       \
  X(cuMemPoolTrimTo,            cuMemPoolTrimTo,            11020, kOptional,  \
    (CUmemoryPool pool, size_t keep_bytes))                                    \
  X(cuMemPoolSetAttribute,      cuMemPoolSetAttribute,      11020, kOptional,  \
    (CUmemoryPool pool, CUmemPool_attribute attribute, void* value))           \
  X(cuMemPoolGetAttribute,      cuMemPoolGetAttribute,      11020, kOptional,  \
    (CUmemoryPool pool, CUmemPool_attribute attribute, void* value))           \
  X(cuMemPoolSetAccess,         cuMemPoolSetAccess,         11020, kOptional,  \
    (CUmemoryPool pool, const CUmemAccessDesc* desc, size_t count))            \
  X(cuMemPoolGetAccess,         cuMemPoolGetAccess,         11020, kOptional,  \
    (CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location))    \
  X(cuMemPoolExportToShareableHandle,                                          \
    cuMemPoolExportToShareableHandle, 11020, kOptional,                        \
    (void* shareable, CUmemoryPool pool, CUmemAllocationHandleType type,       \
     unsigned long long flags))                                                \
  X(cuMemPoolImportFromShareableHandle,                                        \
    cuMemPoolImportFromShareableHandle, 11020, kOptional,                      \
    (CUmemoryPool* pool, void* shareable, CUmemAllocationHandleType type,      \
     unsigned long long flags))                                                \
  X(cuMemPoolExportPointer,     cuMemPoolExportPointer,     11020, kOptional,  \
    (CUmemPoolPtrExportData* exported, CUdeviceptr address))                   \
  X(cuMemPoolImportPointer,     cuMemPoolImportPointer,     11020, kOptional,  \
    (CUdeviceptr* address, CUmemoryPool pool,                                  \
     CUmemPoolPtrExportData* exported))                                        \
  X(cuDeviceGetDefaultMemPool,  cuDeviceGetDefaultMemPool,  11020, kOptional,  \
    (CUmemoryPool* pool, CUdevice device))                                     \
  X(cuDeviceGetMemPool,         cuDeviceGetMemPool,         11020, kOptional,  \
    (CUmemoryPool* pool, CUdevice device))                                     \
  X(cuDeviceSetMemPool,         cuDeviceSetMemPool,         11020, kOptional,  \
    (CUdevice device, CUmemoryPool pool))                                      \
  X(cuMemGetDefaultMemPool,     cuMemGetDefaultMemPool,     13000, kOptional,  \
    (CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type))   \
  X(cuMemGetMemPool,            cuMemGetMemPool,            13000, kOptional,  \
    (CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type))   \
  X(cuMemSetMemPool,            cuMemSetMemPool,            13000, kOptional,  \
    (CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool))    \
  /* Legacy sharing between processes, and what a pointer is */                \
  X(cuIpcGetMemHandle,          cuIpcGetMemHandle,           4010, kOptional,  \
    (CUipcMemHandle* handle, CUdeviceptr address))                             \
  X(cuIpcOpenMemHandle,         cuIpcOpenMemHandle,          4010, kOptional,  \
    (CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags))         \
  X(cuIpcOpenMemHandle_v2,      cuIpcOpenMemHandle,         11000, kOptional,  \
    (CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags))         \
  X(cuIpcCloseMemHandle,        cuIpcCloseMemHandle,         4010, kOptional,  \
    (CUdeviceptr address))                                                     \
  X(cuIpcGetEventHandle,        cuIpcGetEventHandle,         4010, kOptional,  \
    (CUipcEventHandle* handle, CUevent event))                                 \
  X(cuIpcOpenEventHandle,       cuIpcOpenEventHandle,        4010, kOptional,  \
    (CUevent* event, CUipcEventHandle handle))                                 \
  X(cuPointerGetAttribute,      cuPointerGetAttribute,       4000, kOptional,  \
    (void* value, CUpointer_attribute attribute, CUdeviceptr address))         \
  X(cuPointerGetAttributes,     cuPointerGetAttributes,      7000, kOptional,  \
    (unsigned int count, CUpointer_attribute* attributes, void** values,       \
     CUdeviceptr address))                                                     \
  X(cuPointerSetAttribute,      cuPointerSetAttribute,       6000, kOptional,  \
    (const void* value, CUpointer_attribute attribute, CUdeviceptr address))
// clang-format on

#endif  // KERNELS_DRIVER_ENTRY_POINTS_MEMORY_CALLS_H_
