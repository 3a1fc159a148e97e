#ifndef TOOLS_LAB_DEVICE_CUDART_API_LIST_H_
#define TOOLS_LAB_DEVICE_CUDART_API_LIST_H_

// The runtime functions that are emulated, as X(name, args). Each returns
// cudaError_t. runtime_check.cc compares the list with cuda_runtime_api.h;
// unsupported_list.h has the other functions of NVIDIA's runtime.

#include "tools/lab/device/cudart/runtime_types.h"

// clang-format off
#define EMUCUDA_RUNTIME_API(X) \
  /* Devices */ \
  X(cudaDriverGetVersion, (int* version)) \
  X(cudaRuntimeGetVersion, (int* version)) \
  X(cudaGetDeviceCount, (int* count)) \
  X(cudaGetDevice, (int* device)) \
  X(cudaSetDevice, (int device)) \
  X(cudaInitDevice, (int device, unsigned int device_flags, unsigned int flags)) \
  X(cudaGetDeviceFlags, (unsigned int* flags)) \
  X(cudaSetDeviceFlags, (unsigned int flags)) \
  X(cudaGetDeviceProperties, (cudaDeviceProp* prop, int device)) \
  X(cudaDeviceGetAttribute, (int* value, int attribute, int device)) \
  X(cudaDeviceGetPCIBusId, (char* pci_bus_id, int capacity, int device)) \
  X(cudaDeviceGetStreamPriorityRange, (int* least, int* greatest)) \
  X(cudaDeviceGetLimit, (size_t* value, int limit)) \
  X(cudaDeviceSetLimit, (int limit, size_t value)) \
  X(cudaDeviceSynchronize, (void)) \
  X(cudaDeviceReset, (void)) \
  X(cudaDeviceCanAccessPeer, (int* can, int device, int peer)) \
  X(cudaDeviceEnablePeerAccess, (int peer, unsigned int flags)) \
  X(cudaDeviceDisablePeerAccess, (int peer)) \
  X(cudaDeviceGetP2PAttribute, (int* value, int attribute, int from, int to)) \
  X(cudaGetDriverEntryPoint, (const char* symbol, void** function, unsigned long long flags, cudaDriverEntryPointQueryResult* status)) \
  X(cudaGetDriverEntryPointByVersion, (const char* symbol, void** function, unsigned int version, unsigned long long flags, cudaDriverEntryPointQueryResult* status)) \
  X(cudaGetExportTable, (const void** table, const driver::CUuuid* id)) \
  /* Errors */ \
  X(cudaGetLastError, (void)) \
  X(cudaPeekAtLastError, (void)) \
  /* Memory */ \
  X(cudaMalloc, (void** address, size_t bytes)) \
  X(cudaMallocPitch, (void** address, size_t* pitch, size_t width_bytes, size_t rows)) \
  X(cudaMallocManaged, (void** address, size_t bytes, unsigned int flags)) \
  X(cudaFree, (void* address)) \
  X(cudaMallocHost, (void** host, size_t bytes)) \
  X(cudaHostAlloc, (void** host, size_t bytes, unsigned int flags)) \
  X(cudaFreeHost, (void* host)) \
  X(cudaHostRegister, (void* host, size_t bytes, unsigned int flags)) \
  X(cudaHostUnregister, (void* host)) \
  X(cudaHostGetDevicePointer, (void** address, void* host, unsigned int flags)) \
  X(cudaHostGetFlags, (unsigned int* flags, void* host)) \
  X(cudaMemGetInfo, (size_t* free_bytes, size_t* total_bytes)) \
  X(cudaPointerGetAttributes, (cudaPointerAttributes* attributes, const void* address)) \
  X(cudaIpcGetMemHandle, (cudaIpcMemHandle_t* handle, void* address)) \
  X(cudaIpcOpenMemHandle, (void** address, cudaIpcMemHandle_t handle, unsigned int flags)) \
  X(cudaIpcCloseMemHandle, (void* address)) \
  X(cudaIpcGetEventHandle, (cudaIpcEventHandle_t* handle, cudaEvent_t event)) \
  X(cudaIpcOpenEventHandle, (cudaEvent_t* event, cudaIpcEventHandle_t handle)) \
  /* Stream-ordered memory */ \
  X(cudaMallocAsync, (void** address, size_t bytes, cudaStream_t stream)) \
  X(cudaMallocFromPoolAsync, (void** address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)) \
  X(cudaFreeAsync, (void* address, cudaStream_t stream)) \
  X(cudaMemPoolCreate, (cudaMemPool_t* pool, const cudaMemPoolProps* props)) \
  X(cudaMemPoolDestroy, (cudaMemPool_t pool)) \
  X(cudaMemPoolGetAttribute, (cudaMemPool_t pool, int attribute, void* value)) \
  X(cudaMemPoolSetAttribute, (cudaMemPool_t pool, int attribute, void* value)) \
  X(cudaMemPoolGetAccess, (int* flags, cudaMemPool_t pool, driver::CUmemLocation* location)) \
  X(cudaMemPoolSetAccess, (cudaMemPool_t pool, const driver::CUmemAccessDesc* access, size_t count)) \
  X(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes_to_keep)) \
  X(cudaMemPoolExportToShareableHandle, (void* shareable, cudaMemPool_t pool, int type, unsigned int flags)) \
  X(cudaMemPoolImportFromShareableHandle, (cudaMemPool_t* pool, void* shareable, int type, unsigned int flags)) \
  X(cudaDeviceGetDefaultMemPool, (cudaMemPool_t* pool, int device)) \
  X(cudaDeviceGetMemPool, (cudaMemPool_t* pool, int device)) \
  X(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool)) \
  /* Copies and fills */ \
  X(cudaMemcpy, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind)) \
  X(cudaMemcpyAsync, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)) \
  X(cudaMemcpy2D, (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width_bytes, size_t rows, cudaMemcpyKind kind)) \
  X(cudaMemcpy2DAsync, (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width_bytes, size_t rows, cudaMemcpyKind kind, cudaStream_t stream)) \
  X(cudaMemcpyPeer, (void* to, int to_device, const void* from, int from_device, size_t bytes)) \
  X(cudaMemcpyPeerAsync, (void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream)) \
  X(cudaMemcpyToSymbol, (const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind)) \
  X(cudaMemcpyToSymbolAsync, (const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t stream)) \
  X(cudaMemcpyFromSymbol, (void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind)) \
  X(cudaMemcpyFromSymbolAsync, (void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t stream)) \
  X(cudaMemset, (void* to, int value, size_t bytes)) \
  X(cudaMemsetAsync, (void* to, int value, size_t bytes, cudaStream_t stream)) \
  X(cudaMemset2D, (void* to, size_t pitch, int value, size_t width_bytes, size_t rows)) \
  X(cudaMemset2DAsync, (void* to, size_t pitch, int value, size_t width_bytes, size_t rows, cudaStream_t stream)) \
  /* Streams */ \
  X(cudaStreamCreate, (cudaStream_t* stream)) \
  X(cudaStreamCreateWithFlags, (cudaStream_t* stream, unsigned int flags)) \
  X(cudaStreamCreateWithPriority, (cudaStream_t* stream, unsigned int flags, int priority)) \
  X(cudaStreamDestroy, (cudaStream_t stream)) \
  X(cudaStreamSynchronize, (cudaStream_t stream)) \
  X(cudaStreamQuery, (cudaStream_t stream)) \
  X(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags)) \
  X(cudaStreamGetPriority, (cudaStream_t stream, int* priority)) \
  X(cudaStreamGetFlags, (cudaStream_t stream, unsigned int* flags)) \
  X(cudaStreamGetId, (cudaStream_t stream, unsigned long long* id)) \
  X(cudaStreamAddCallback, (cudaStream_t stream, cudaStreamCallback_t callback, void* user_data, unsigned int flags)) \
  X(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void* user_data)) \
  /* Captures and graphs */ \
  X(cudaStreamBeginCapture, (cudaStream_t stream, cudaStreamCaptureMode mode)) \
  X(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* graph)) \
  X(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status)) \
  X(cudaStreamGetCaptureInfo, (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph, const void** dependencies, const void** edges, size_t* count)) \
  X(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode* mode)) \
  X(cudaGraphInstantiate, (cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags)) \
  X(cudaGraphInstantiateWithFlags, (cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags)) \
  X(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count)) \
  X(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream)) \
  X(cudaGraphExecDestroy, (cudaGraphExec_t exec)) \
  X(cudaGraphDestroy, (cudaGraph_t graph)) \
  /* Events */ \
  X(cudaEventCreate, (cudaEvent_t* event)) \
  X(cudaEventCreateWithFlags, (cudaEvent_t* event, unsigned int flags)) \
  X(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream)) \
  X(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags)) \
  X(cudaEventQuery, (cudaEvent_t event)) \
  X(cudaEventSynchronize, (cudaEvent_t event)) \
  X(cudaEventElapsedTime, (float* milliseconds, cudaEvent_t start, cudaEvent_t end)) \
  X(cudaEventDestroy, (cudaEvent_t event)) \
  /* Kernels */ \
  X(cudaLaunchKernel, (const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream)) \
  X(cudaLaunchKernelExC, (const cudaLaunchConfig_t* config, const void* function, void** arguments)) \
  X(cudaLaunchCooperativeKernel, (const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream)) \
  X(cudaFuncGetAttributes, (cudaFuncAttributes* attributes, const void* function)) \
  X(cudaFuncSetAttribute, (const void* function, int attribute, int value)) \
  X(cudaFuncSetCacheConfig, (const void* function, int config)) \
  X(cudaFuncGetName, (const char** name, const void* function)) \
  X(cudaGetKernel, (cudaKernel_t* kernel, const void* function)) \
  X(cudaGetFuncBySymbol, (cudaFunction_t* out, const void* function)) \
  X(cudaKernelSetAttributeForDevice, (cudaKernel_t kernel, int attribute, int value, int device)) \
  X(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int* blocks, const void* function, int block_threads, size_t shared_bytes)) \
  X(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int* blocks, const void* function, int block_threads, size_t shared_bytes, unsigned int flags)) \
  X(cudaLibraryLoadData, (cudaLibrary_t* library, const void* code, int* jit_options, void** jit_values, unsigned int jit_count, int* options, void** values, unsigned int count)) \
  X(cudaLibraryUnload, (cudaLibrary_t library)) \
  X(cudaLibraryGetKernel, (cudaKernel_t* kernel, cudaLibrary_t library, const char* name)) \
  X(cudaLibraryGetGlobal, (void** address, size_t* bytes, cudaLibrary_t library, const char* name)) \
  X(cudaGetSymbolAddress, (void** address, const void* symbol)) \
  X(cudaGetSymbolSize, (size_t* bytes, const void* symbol)) \
  /* Profiling: nothing to start or stop */ \
  X(cudaProfilerStart, (void)) \
  X(cudaProfilerStop, (void))
// clang-format on

#endif  // TOOLS_LAB_DEVICE_CUDART_API_LIST_H_
