#ifndef KERNELS_DRIVER_ENTRY_POINTS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_H_

// The one list of CUDA driver entry points: what FineServe calls, what the
// emulated driver provides, and what a program may link against.
//
//   X(symbol, name, since, need, args)
//     symbol  the exported symbol, and the member in driver::EntryPoints
//     name    what a program asks cuGetProcAddress for
//     since   the CUDA version (1000 × major + 10 × minor) that introduced
//             this ABI of the name; asking with a version in
//             [since, next row's since) of the same name must yield `symbol`
//             (checked against cudaTypedefs.h where a toolkit is present)
//     need    kRequired: FineServe cannot work with a driver that lacks it;
//             kOptional: the emulated driver has it, we do without
//     args    the parameter list; every entry point returns CUresult
// per_thread_entry_points.h lists their per-thread variants.

#include "kernels/driver/cuda_graph_types.h"
#include "kernels/driver/cuda_kernel_types.h"
#include "kernels/driver/cuda_structs.h"
#include "kernels/driver/cuda_types.h"
#include "kernels/driver/per_thread_entry_points.h"

// clang-format off
#define FINESERVE_DRIVER_ENTRY_POINTS(X) \
  /* Initialisation, resolution, errors */ \
  X(cuInit, cuInit, 2000, kRequired, (unsigned int flags)) \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020, kRequired, (int* version)) \
  X(cuGetErrorName, cuGetErrorName, 6000, kRequired, (CUresult error, const char** name)) \
  X(cuGetErrorString, cuGetErrorString, 6000, kRequired, (CUresult error, const char** text)) \
  X(cuGetProcAddress, cuGetProcAddress, 11030, kOptional, (const char* symbol, void** pfn, int cuda_version, uint64_t flags)) \
  X(cuGetProcAddress_v2, cuGetProcAddress, 12000, kOptional, (const char* symbol, void** pfn, int cuda_version, uint64_t flags, CUdriverProcAddressQueryResult* status)) \
  X(cuGetExportTable, cuGetExportTable, 3000, kOptional, (const void** table, const CUuuid* id)) \
  /* Devices and contexts */ \
  X(cuDeviceGet, cuDeviceGet, 2000, kRequired, (CUdevice* device, int ordinal)) \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000, kRequired, (int* count)) \
  X(cuDeviceGetName, cuDeviceGetName, 2000, kRequired, (char* name, int capacity, CUdevice device)) \
  X(cuDeviceGetUuid, cuDeviceGetUuid, 9020, kOptional, (CUuuid* uuid, CUdevice device)) \
  X(cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, kRequired, (CUuuid* uuid, CUdevice device)) \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, kRequired, (int* value, CUdevice_attribute attribute, CUdevice device)) \
  X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, kRequired, (size_t* bytes, CUdevice device)) \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, kOptional, (char* pci_bus_id, int capacity, CUdevice device)) \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, kRequired, (CUcontext* context, CUdevice device)) \
  X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, kRequired, (CUdevice device)) \
  X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, kOptional, (CUdevice device)) \
  X(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags, 11000, kOptional, (CUdevice device, unsigned int flags)) \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, kOptional, (CUdevice device, unsigned int* flags, int* active)) \
  X(cuCtxCreate_v2, cuCtxCreate, 3020, kOptional, (CUcontext* context, unsigned int flags, CUdevice device)) \
  X(cuCtxCreate_v3, cuCtxCreate, 11040, kOptional, (CUcontext* context, CUexecAffinityParam* params, int param_count, unsigned int flags, CUdevice device)) \
  X(cuCtxCreate_v4, cuCtxCreate, 12050, kOptional, (CUcontext* context, CUctxCreateParams* params, unsigned int flags, CUdevice device)) \
  X(cuCtxDestroy_v2, cuCtxDestroy, 4000, kOptional, (CUcontext context)) \
  X(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, kRequired, (CUcontext context)) \
  X(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, kRequired, (CUcontext* context)) \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, kRequired, (CUcontext context)) \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, kRequired, (CUcontext* context)) \
  X(cuCtxGetDevice, cuCtxGetDevice, 2000, kRequired, (CUdevice* device)) \
  X(cuCtxGetDevice_v2, cuCtxGetDevice, 13000, kOptional, (CUdevice* device, CUcontext context)) \
  X(cuCtxSynchronize, cuCtxSynchronize, 2000, kRequired, (void)) \
  X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, kOptional, (CUcontext context)) \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, kOptional, (CUdevice device)) \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, kOptional, (CUdevice device)) \
  X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags, 7000, kOptional, (CUdevice device, unsigned int flags)) \
  X(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010, kOptional, (CUdevice* device, const char* pci_bus_id)) \
  X(cuDeviceComputeCapability, cuDeviceComputeCapability, 2000, kOptional, (int* major, int* minor, CUdevice device)) \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, kOptional, (int* can, CUdevice device, CUdevice peer)) \
  X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, kOptional, (int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)) \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, kOptional, (CUcontext peer, unsigned int flags)) \
  X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, kOptional, (CUcontext peer)) \
  X(cuCtxGetFlags, cuCtxGetFlags, 7000, kOptional, (unsigned int* flags)) \
  X(cuCtxSetFlags, cuCtxSetFlags, 12010, kOptional, (unsigned int flags)) \
  X(cuCtxGetId, cuCtxGetId, 12000, kOptional, (CUcontext context, unsigned long long* id)) \
  X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, kOptional, (CUcontext context, unsigned int* version)) \
  X(cuCtxGetLimit, cuCtxGetLimit, 3010, kOptional, (size_t* value, CUlimit limit)) \
  X(cuCtxSetLimit, cuCtxSetLimit, 3010, kOptional, (CUlimit limit, size_t value)) \
  X(cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, 11000, kOptional, (void)) \
  X(cuProfilerStart, cuProfilerStart, 4000, kOptional, (void)) \
  X(cuProfilerStop, cuProfilerStop, 4000, kOptional, (void)) \
  /* Legacy allocation */ \
  X(cuMemAlloc_v2, cuMemAlloc, 3020, kRequired, (CUdeviceptr* address, size_t bytes)) \
  X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, kOptional, (CUdeviceptr* address, size_t* pitch, size_t width_bytes, size_t rows, unsigned int element_bytes)) \
  X(cuMemFree_v2, cuMemFree, 3020, kRequired, (CUdeviceptr address)) \
  X(cuMemGetInfo_v2, cuMemGetInfo, 3020, kRequired, (size_t* free_bytes, size_t* total_bytes)) \
  X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, kRequired, (CUdeviceptr* base, size_t* bytes, CUdeviceptr address)) \
  X(cuMemAllocHost_v2, cuMemAllocHost, 3020, kOptional, (void** host, size_t bytes)) \
  X(cuMemHostAlloc, cuMemHostAlloc, 2020, kOptional, (void** host, size_t bytes, unsigned int flags)) \
  X(cuMemFreeHost, cuMemFreeHost, 2000, kOptional, (void* host)) \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000, kOptional, (CUdeviceptr* address, size_t bytes, unsigned int flags)) \
  X(cuMemHostRegister_v2, cuMemHostRegister, 6050, kOptional, (void* host, size_t bytes, unsigned int flags)) \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000, kOptional, (void* host)) \
  X(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020, kOptional, (CUdeviceptr* address, void* host, unsigned int flags)) \
  X(cuMemHostGetFlags, cuMemHostGetFlags, 2030, kOptional, (unsigned int* flags, void* host)) \
  X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, kOptional, (void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags)) \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, kOptional, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)) \
  X(cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020, kOptional, (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream)) \
  X(cuMemAdvise, cuMemAdvise, 8000, kOptional, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)) \
  X(cuMemAdvise_v2, cuMemAdvise, 12020, kOptional, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)) \
  X(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000, kOptional, (void* value, size_t value_bytes, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes)) \
  X(cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000, kOptional, (void** values, size_t* value_bytes, CUmem_range_attribute* attributes, size_t count, CUdeviceptr address, size_t bytes)) \
  X(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000, kOptional, (CUdeviceptr* addresses, size_t* bytes, size_t count, CUmemLocation* locations, size_t* location_starts, size_t location_count, unsigned long long flags, CUstream stream)) \
  X(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000, kOptional, (CUdeviceptr* addresses, size_t* bytes, size_t count, unsigned long long flags, CUstream stream)) \
  X(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000, kOptional, (CUdeviceptr* addresses, size_t* bytes, size_t count, CUmemLocation* locations, size_t* location_starts, size_t location_count, unsigned long long flags, CUstream stream)) \
  /* Virtual memory management */ \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, kRequired, (size_t* bytes, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option)) \
  X(cuMemCreate, cuMemCreate, 10020, kRequired, (CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop, unsigned long long flags)) \
  X(cuMemRelease, cuMemRelease, 10020, kRequired, (CUmemGenericAllocationHandle handle)) \
  X(cuMemAddressReserve, cuMemAddressReserve, 10020, kRequired, (CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags)) \
  X(cuMemAddressFree, cuMemAddressFree, 10020, kRequired, (CUdeviceptr address, size_t bytes)) \
  X(cuMemMap, cuMemMap, 10020, kRequired, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(cuMemUnmap, cuMemUnmap, 10020, kRequired, (CUdeviceptr address, size_t bytes)) \
  X(cuMemSetAccess, cuMemSetAccess, 10020, kRequired, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* desc, size_t count)) \
  X(cuMemGetAccess, cuMemGetAccess, 10020, kOptional, (unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address)) \
  X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, kRequired, (void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)) \
  X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, kRequired, (CUmemGenericAllocationHandle* handle, void* shareable, CUmemAllocationHandleType type)) \
  X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020, kOptional, (CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle)) \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, kOptional, (CUmemGenericAllocationHandle* handle, void* address)) \
  /* Stream-ordered allocation */ \
  X(cuMemAllocAsync, cuMemAllocAsync, 11020, kOptional, (CUdeviceptr* address, size_t bytes, CUstream stream)) \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, kOptional, (CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream)) \
  X(cuMemFreeAsync, cuMemFreeAsync, 11020, kOptional, (CUdeviceptr address, CUstream stream)) \
  X(cuMemPoolCreate, cuMemPoolCreate, 11020, kOptional, (CUmemoryPool* pool, const CUmemPoolProps* props)) \
  X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, kOptional, (CUmemoryPool pool)) \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, kOptional, (CUmemoryPool pool, size_t keep_bytes)) \
  X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, kOptional, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value)) \
  X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, kOptional, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value)) \
  X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, kOptional, (CUmemoryPool pool, const CUmemAccessDesc* desc, size_t count)) \
  X(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, kOptional, (CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location)) \
  X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, kOptional, (void* shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)) \
  X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, kOptional, (CUmemoryPool* pool, void* shareable, CUmemAllocationHandleType type, unsigned long long flags)) \
  X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, kOptional, (CUmemPoolPtrExportData* exported, CUdeviceptr address)) \
  X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, kOptional, (CUdeviceptr* address, CUmemoryPool pool, CUmemPoolPtrExportData* exported)) \
  X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, kOptional, (CUmemoryPool* pool, CUdevice device)) \
  X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, kOptional, (CUmemoryPool* pool, CUdevice device)) \
  X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, kOptional, (CUdevice device, CUmemoryPool pool)) \
  X(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, kOptional, (CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type)) \
  X(cuMemGetMemPool, cuMemGetMemPool, 13000, kOptional, (CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type)) \
  X(cuMemSetMemPool, cuMemSetMemPool, 13000, kOptional, (CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool)) \
  /* Legacy sharing between processes, and what a pointer is */ \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, kOptional, (CUipcMemHandle* handle, CUdeviceptr address)) \
  X(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, kOptional, (CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags)) \
  X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, kOptional, (CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags)) \
  X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, kOptional, (CUdeviceptr address)) \
  X(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, kOptional, (CUipcEventHandle* handle, CUevent event)) \
  X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, kOptional, (CUevent* event, CUipcEventHandle handle)) \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, kOptional, (void* value, CUpointer_attribute attribute, CUdeviceptr address)) \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, kOptional, (unsigned int count, CUpointer_attribute* attributes, void** values, CUdeviceptr address)) \
  X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, kOptional, (const void* value, CUpointer_attribute attribute, CUdeviceptr address)) \
  /* Copies and fills */ \
  X(cuMemcpy, cuMemcpy, 4000, kOptional, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
  X(cuMemcpyAsync, cuMemcpyAsync, 4000, kOptional, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
  X(cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, kRequired, (CUdeviceptr to, const void* from, size_t bytes)) \
  X(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, kRequired, (void* to, CUdeviceptr from, size_t bytes)) \
  X(cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, kOptional, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
  X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, kOptional, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream)) \
  X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, kOptional, (void* to, CUdeviceptr from, size_t bytes, CUstream stream)) \
  X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, kOptional, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
  X(cuMemsetD8_v2, cuMemsetD8, 3020, kRequired, (CUdeviceptr to, unsigned char value, size_t count)) \
  X(cuMemsetD32_v2, cuMemsetD32, 3020, kOptional, (CUdeviceptr to, unsigned int value, size_t count)) \
  X(cuMemsetD8Async, cuMemsetD8Async, 3020, kRequired, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream)) \
  X(cuMemsetD32Async, cuMemsetD32Async, 3020, kRequired, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream)) \
  X(cuMemcpyPeer, cuMemcpyPeer, 4000, kOptional, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)) \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, kOptional, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)) \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080, kOptional, (CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count, CUmemcpyAttributes* attributes, size_t* attribute_starts, size_t attribute_count, size_t* failed, CUstream stream)) \
  X(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000, kOptional, (CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count, CUmemcpyAttributes* attributes, size_t* attribute_starts, size_t attribute_count, CUstream stream)) \
  X(cuMemcpy2D_v2, cuMemcpy2D, 3020, kOptional, (const CUDA_MEMCPY2D* copy)) \
  X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, kOptional, (const CUDA_MEMCPY2D* copy)) \
  X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, kOptional, (const CUDA_MEMCPY2D* copy, CUstream stream)) \
  X(cuMemcpy3D_v2, cuMemcpy3D, 3020, kOptional, (const CUDA_MEMCPY3D* copy)) \
  X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, kOptional, (const CUDA_MEMCPY3D* copy, CUstream stream)) \
  X(cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, kOptional, (const CUDA_MEMCPY3D_PEER* copy)) \
  X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, kOptional, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream)) \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080, kOptional, (size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed, unsigned long long flags, CUstream stream)) \
  X(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000, kOptional, (size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags, CUstream stream)) \
  X(cuMemsetD16_v2, cuMemsetD16, 3020, kOptional, (CUdeviceptr to, unsigned short value, size_t count)) \
  X(cuMemsetD16Async, cuMemsetD16Async, 3020, kOptional, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream)) \
  X(cuMemsetD2D8_v2, cuMemsetD2D8, 3020, kOptional, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t rows)) \
  X(cuMemsetD2D16_v2, cuMemsetD2D16, 3020, kOptional, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t rows)) \
  X(cuMemsetD2D32_v2, cuMemsetD2D32, 3020, kOptional, (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t rows)) \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, kOptional, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t rows, CUstream stream)) \
  X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, kOptional, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t rows, CUstream stream)) \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, kOptional, (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t rows, CUstream stream)) \
  /* Streams and events */ \
  X(cuStreamCreate, cuStreamCreate, 2000, kRequired, (CUstream* stream, unsigned int flags)) \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, kOptional, (CUstream* stream, unsigned int flags, int priority)) \
  X(cuStreamDestroy_v2, cuStreamDestroy, 4000, kRequired, (CUstream stream)) \
  X(cuStreamSynchronize, cuStreamSynchronize, 2000, kRequired, (CUstream stream)) \
  X(cuStreamQuery, cuStreamQuery, 2000, kOptional, (CUstream stream)) \
  X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, kOptional, (CUstream stream, CUstreamCaptureStatus* status)) \
  X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, kOptional, (CUstream stream, CUevent event, unsigned int flags)) \
  X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, kOptional, (CUstream stream, CUhostFn function, void* user_data)) \
  X(cuEventCreate, cuEventCreate, 2000, kRequired, (CUevent* event, unsigned int flags)) \
  X(cuEventRecord, cuEventRecord, 2000, kRequired, (CUevent event, CUstream stream)) \
  X(cuEventQuery, cuEventQuery, 2000, kRequired, (CUevent event)) \
  X(cuEventSynchronize, cuEventSynchronize, 2000, kOptional, (CUevent event)) \
  X(cuEventElapsedTime, cuEventElapsedTime, 2000, kOptional, (float* milliseconds, CUevent start, CUevent end)) \
  X(cuEventDestroy_v2, cuEventDestroy, 4000, kRequired, (CUevent event)) \
  X(cuStreamGetPriority, cuStreamGetPriority, 5050, kOptional, (CUstream stream, int* priority)) \
  X(cuStreamGetFlags, cuStreamGetFlags, 5050, kOptional, (CUstream stream, unsigned int* flags)) \
  X(cuStreamGetId, cuStreamGetId, 12000, kOptional, (CUstream stream, unsigned long long* id)) \
  X(cuStreamGetCtx, cuStreamGetCtx, 9020, kOptional, (CUstream stream, CUcontext* context)) \
  X(cuStreamGetDevice, cuStreamGetDevice, 12080, kOptional, (CUstream stream, CUdevice* device)) \
  X(cuStreamAddCallback, cuStreamAddCallback, 5000, kOptional, (CUstream stream, CUstreamCallback callback, void* user_data, unsigned int flags)) \
  X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, kOptional, (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags)) \
  X(cuStreamWriteValue32, cuStreamWriteValue32, 8000, kOptional, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)) \
  X(cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, kOptional, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)) \
  X(cuStreamWriteValue64, cuStreamWriteValue64, 9000, kOptional, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)) \
  X(cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070, kOptional, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)) \
  X(cuStreamWaitValue32, cuStreamWaitValue32, 8000, kOptional, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)) \
  X(cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, kOptional, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)) \
  X(cuStreamWaitValue64, cuStreamWaitValue64, 9000, kOptional, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)) \
  X(cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070, kOptional, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)) \
  X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, kOptional, (CUstream stream, CUstreamCaptureMode mode)) \
  X(cuStreamEndCapture, cuStreamEndCapture, 10000, kOptional, (CUstream stream, CUgraph* graph)) \
  X(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo, 11030, kOptional, (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph, const CUgraphNode** dependencies, size_t* count)) \
  X(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, 12030, kOptional, (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph, const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count)) \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, kOptional, (CUstreamCaptureMode* mode)) \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, kOptional, (CUevent event, CUstream stream, unsigned int flags)) \
  X(cuEventElapsedTime_v2, cuEventElapsedTime, 12080, kOptional, (float* milliseconds, CUevent start, CUevent end)) \
  /* Graphs */ \
  X(cuGraphCreate, cuGraphCreate, 10000, kOptional, (CUgraph* graph, unsigned int flags)) \
  X(cuGraphDestroy, cuGraphDestroy, 10000, kOptional, (CUgraph graph)) \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, kOptional, (CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t after_count, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context)) \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, kOptional, (CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t after_count, const CUDA_MEMCPY3D* params, CUcontext context)) \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, kOptional, (CUgraphExec* exec, CUgraph graph, unsigned long long flags)) \
  X(cuGraphLaunch, cuGraphLaunch, 10000, kOptional, (CUgraphExec exec, CUstream stream)) \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, kOptional, (CUgraphExec exec)) \
  /* Libraries and kernels */ \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, kOptional, (int* least, int* greatest)) \
  X(cuLibraryLoadData, cuLibraryLoadData, 12000, kOptional, (CUlibrary* library, const void* code, CUjit_option* jit_options, void** jit_values, unsigned int jit_count, CUlibraryOption* options, void** values, unsigned int count)) \
  X(cuLibraryUnload, cuLibraryUnload, 12000, kOptional, (CUlibrary library)) \
  X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, kOptional, (CUkernel* kernel, CUlibrary library, const char* name)) \
  X(cuKernelGetFunction, cuKernelGetFunction, 12000, kOptional, (CUfunction* function, CUkernel kernel)) \
  X(cuKernelGetName, cuKernelGetName, 12030, kOptional, (const char** name, CUkernel kernel)) \
  X(cuKernelGetAttribute, cuKernelGetAttribute, 12000, kOptional, (int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)) \
  X(cuKernelSetAttribute, cuKernelSetAttribute, 12000, kOptional, (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)) \
  X(cuLaunchKernel, cuLaunchKernel, 4000, kOptional, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** arguments, void** extra)) \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, kOptional, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** arguments)) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, kOptional, (int* blocks, CUfunction function, int block_threads, size_t shared_bytes, unsigned int flags)) \
  X(cuModuleLoad, cuModuleLoad, 2000, kOptional, (CUmodule* module, const char* file)) \
  X(cuModuleLoadData, cuModuleLoadData, 2000, kOptional, (CUmodule* module, const void* image)) \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, kOptional, (CUmodule* module, const void* image, unsigned int count, CUjit_option* options, void** values)) \
  X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, kOptional, (CUmodule* module, const void* image)) \
  X(cuModuleUnload, cuModuleUnload, 2000, kOptional, (CUmodule module)) \
  X(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, kOptional, (CUmoduleLoadingMode* mode)) \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000, kOptional, (CUfunction* function, CUmodule module, const char* name)) \
  X(cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020, kOptional, (CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name)) \
  X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, kOptional, (CUlibrary* library, const char* file, CUjit_option* jit_options, void** jit_values, unsigned int jit_count, CUlibraryOption* options, void** values, unsigned int count)) \
  X(cuLibraryGetModule, cuLibraryGetModule, 12000, kOptional, (CUmodule* module, CUlibrary library)) \
  X(cuFuncGetName, cuFuncGetName, 12030, kOptional, (const char** name, CUfunction function)) \
  X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, kOptional, (int* value, CUfunction_attribute attribute, CUfunction function)) \
  X(cuFuncSetAttribute, cuFuncSetAttribute, 9000, kOptional, (CUfunction function, CUfunction_attribute attribute, int value)) \
  X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, kOptional, (const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra)) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, kOptional, (int* blocks, CUfunction function, int block_threads, size_t dynamic_shared_bytes)) \
  X(cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050, kOptional, (int* grid_blocks, int* block_threads, CUfunction function, CUoccupancyB2DSize shared_bytes_of, size_t dynamic_shared_bytes, int limit)) \
  X(cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, kOptional, (int* grid_blocks, int* block_threads, CUfunction function, CUoccupancyB2DSize shared_bytes_of, size_t dynamic_shared_bytes, int limit, unsigned int flags))
// clang-format on

namespace fineserve::driver {

enum class Need : uint8_t { kRequired, kOptional };

// A driver's functions, resolved. A member is null only if its row is
// kOptional and the driver lacks it. Plain data: safe to read from any thread
// once filled; owns nothing.
struct EntryPoints {
#define FINESERVE_MEMBER(symbol, name, since, need, args) \
  CUresult(*symbol) args = nullptr;
  FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_MEMBER)
#undef FINESERVE_MEMBER
#define FINESERVE_MEMBER(plain, variant, name, since, args, call) \
  CUresult(*plain##_##variant) args = nullptr;
  FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_MEMBER)
#undef FINESERVE_MEMBER
};

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_ENTRY_POINTS_H_
