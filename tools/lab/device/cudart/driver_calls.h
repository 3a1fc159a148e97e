#ifndef TOOLS_LAB_DEVICE_CUDART_DRIVER_CALLS_H_
#define TOOLS_LAB_DEVICE_CUDART_DRIVER_CALLS_H_

// The driver functions that the runtime calls. It finds them as NVIDIA's
// runtime does: it looks up cuGetProcAddress_v2 with dlsym, and everything else
// through that function. A preloaded library that replaces the resolver
// therefore intercepts the same calls as with NVIDIA's runtime.

#include <cstdint>

#include "tools/lab/device/cudart/error.h"
#include "tools/lab/device/cudart/runtime_types.h"

namespace fineserve::cudart {

using driver::CUcontext;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUresult;

// X(name, since, args): the name to ask the resolver for, and the CUDA version
// whose ABI is meant (runtime_check.cc compares both with cudaTypedefs.h). The
// driver's handles and structures are those of the runtime.
// clang-format off
#define EMUCUDA_RUNTIME_DRIVER_CALLS(X) \
  X(cuInit, 2000, (unsigned int flags)) \
  X(cuDriverGetVersion, 2020, (int* version)) \
  X(cuDeviceGet, 2000, (CUdevice* device, int ordinal)) \
  X(cuDeviceGetCount, 2000, (int* count)) \
  X(cuDeviceGetName, 2000, (char* name, int capacity, CUdevice device)) \
  X(cuDeviceGetUuid, 11040, (driver::CUuuid* uuid, CUdevice device)) \
  X(cuDeviceGetAttribute, 2000, (int* value, driver::CUdevice_attribute attribute, CUdevice device)) \
  X(cuDeviceTotalMem, 3020, (size_t* bytes, CUdevice device)) \
  X(cuDeviceGetPCIBusId, 4010, (char* pci_bus_id, int capacity, CUdevice device)) \
  X(cuDeviceCanAccessPeer, 4000, (int* can, CUdevice device, CUdevice peer)) \
  X(cuDeviceGetP2PAttribute, 8000, (int* value, int attribute, CUdevice from, CUdevice to)) \
  X(cuDevicePrimaryCtxRetain, 7000, (CUcontext* context, CUdevice device)) \
  X(cuDevicePrimaryCtxRelease, 11000, (CUdevice device)) \
  X(cuDevicePrimaryCtxReset, 11000, (CUdevice device)) \
  X(cuDevicePrimaryCtxSetFlags, 11000, (CUdevice device, unsigned int flags)) \
  X(cuDevicePrimaryCtxGetState, 7000, (CUdevice device, unsigned int* flags, int* active)) \
  X(cuCtxGetCurrent, 4000, (CUcontext* context)) \
  X(cuCtxSetCurrent, 4000, (CUcontext context)) \
  X(cuCtxGetDevice, 2000, (CUdevice* device)) \
  X(cuCtxSynchronize, 2000, (void)) \
  X(cuCtxGetStreamPriorityRange, 5050, (int* least, int* greatest)) \
  X(cuCtxGetLimit, 3010, (size_t* value, int limit)) \
  X(cuCtxSetLimit, 3010, (int limit, size_t value)) \
  X(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned int flags)) \
  X(cuCtxDisablePeerAccess, 4000, (CUcontext peer)) \
  X(cuMemAlloc, 3020, (CUdeviceptr* address, size_t bytes)) \
  X(cuMemAllocPitch, 3020, (CUdeviceptr* address, size_t* pitch, size_t width_bytes, size_t rows, unsigned int element_bytes)) \
  X(cuMemAllocManaged, 6000, (CUdeviceptr* address, size_t bytes, unsigned int flags)) \
  X(cuMemFree, 3020, (CUdeviceptr address)) \
  X(cuMemGetInfo, 3020, (size_t* free_bytes, size_t* total_bytes)) \
  X(cuMemHostAlloc, 2020, (void** host, size_t bytes, unsigned int flags)) \
  X(cuMemFreeHost, 2000, (void* host)) \
  X(cuMemHostRegister, 6050, (void* host, size_t bytes, unsigned int flags)) \
  X(cuMemHostUnregister, 4000, (void* host)) \
  X(cuMemHostGetDevicePointer, 3020, (CUdeviceptr* address, void* host, unsigned int flags)) \
  X(cuMemHostGetFlags, 2030, (unsigned int* flags, void* host)) \
  X(cuPointerGetAttributes, 7000, (unsigned int count, int* attributes, void** values, CUdeviceptr address)) \
  X(cuIpcGetMemHandle, 4010, (cudaIpcMemHandle_t* handle, CUdeviceptr address)) \
  X(cuIpcOpenMemHandle, 11000, (CUdeviceptr* address, cudaIpcMemHandle_t handle, unsigned int flags)) \
  X(cuIpcCloseMemHandle, 4010, (CUdeviceptr address)) \
  X(cuIpcGetEventHandle, 4010, (cudaIpcEventHandle_t* handle, cudaEvent_t event)) \
  X(cuIpcOpenEventHandle, 4010, (cudaEvent_t* event, cudaIpcEventHandle_t handle)) \
  X(cuMemAllocAsync, 11020, (CUdeviceptr* address, size_t bytes, cudaStream_t stream)) \
  X(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr* address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)) \
  X(cuMemFreeAsync, 11020, (CUdeviceptr address, cudaStream_t stream)) \
  X(cuMemPoolCreate, 11020, (cudaMemPool_t* pool, const cudaMemPoolProps* props)) \
  X(cuMemPoolDestroy, 11020, (cudaMemPool_t pool)) \
  X(cuMemPoolGetAttribute, 11020, (cudaMemPool_t pool, int attribute, void* value)) \
  X(cuMemPoolSetAttribute, 11020, (cudaMemPool_t pool, int attribute, void* value)) \
  X(cuMemPoolGetAccess, 11020, (int* flags, cudaMemPool_t pool, driver::CUmemLocation* location)) \
  X(cuMemPoolSetAccess, 11020, (cudaMemPool_t pool, const driver::CUmemAccessDesc* access, size_t count)) \
  X(cuMemPoolTrimTo, 11020, (cudaMemPool_t pool, size_t bytes_to_keep)) \
  X(cuMemPoolExportToShareableHandle, 11020, (void* shareable, cudaMemPool_t pool, int type, unsigned long long flags)) \
  X(cuMemPoolImportFromShareableHandle, 11020, (cudaMemPool_t* pool, void* shareable, int type, unsigned long long flags)) \
  X(cuDeviceGetDefaultMemPool, 11020, (cudaMemPool_t* pool, CUdevice device)) \
  X(cuDeviceGetMemPool, 11020, (cudaMemPool_t* pool, CUdevice device)) \
  X(cuDeviceSetMemPool, 11020, (CUdevice device, cudaMemPool_t pool)) \
  X(cuMemcpy, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
  X(cuMemcpyAsync, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, cudaStream_t stream)) \
  X(cuMemcpyHtoD, 3020, (CUdeviceptr to, const void* from, size_t bytes)) \
  X(cuMemcpyDtoH, 3020, (void* to, CUdeviceptr from, size_t bytes)) \
  X(cuMemcpyDtoD, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
  X(cuMemcpyHtoDAsync, 3020, (CUdeviceptr to, const void* from, size_t bytes, cudaStream_t stream)) \
  X(cuMemcpyDtoHAsync, 3020, (void* to, CUdeviceptr from, size_t bytes, cudaStream_t stream)) \
  X(cuMemcpyDtoDAsync, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes, cudaStream_t stream)) \
  X(cuMemsetD8, 3020, (CUdeviceptr to, unsigned char value, size_t count)) \
  X(cuMemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t count, cudaStream_t stream)) \
  X(cuStreamCreate, 2000, (cudaStream_t* stream, unsigned int flags)) \
  X(cuStreamCreateWithPriority, 5050, (cudaStream_t* stream, unsigned int flags, int priority)) \
  X(cuStreamDestroy, 4000, (cudaStream_t stream)) \
  X(cuStreamSynchronize, 2000, (cudaStream_t stream)) \
  X(cuStreamQuery, 2000, (cudaStream_t stream)) \
  X(cuStreamWaitEvent, 3020, (cudaStream_t stream, cudaEvent_t event, unsigned int flags)) \
  X(cuStreamGetPriority, 5050, (cudaStream_t stream, int* priority)) \
  X(cuStreamGetFlags, 5050, (cudaStream_t stream, unsigned int* flags)) \
  X(cuStreamGetId, 12000, (cudaStream_t stream, unsigned long long* id)) \
  X(cuStreamIsCapturing, 10000, (cudaStream_t stream, int* status)) \
  X(cuStreamBeginCapture, 10010, (cudaStream_t stream, cudaStreamCaptureMode mode)) \
  X(cuStreamEndCapture, 10000, (cudaStream_t stream, cudaGraph_t* graph)) \
  X(cuStreamGetCaptureInfo, 12030, (cudaStream_t stream, int* status, unsigned long long* id, cudaGraph_t* graph, const void** dependencies, const void** edges, size_t* count)) \
  X(cuThreadExchangeStreamCaptureMode, 10010, (cudaStreamCaptureMode* mode)) \
  X(cuGraphInstantiateWithFlags, 11040, (cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags)) \
  X(cuGraphGetNodes, 10000, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count)) \
  X(cuGraphLaunch, 10000, (cudaGraphExec_t exec, cudaStream_t stream)) \
  X(cuGraphExecDestroy, 10000, (cudaGraphExec_t exec)) \
  X(cuGraphDestroy, 10000, (cudaGraph_t graph)) \
  X(cuLaunchHostFunc, 10000, (cudaStream_t stream, cudaHostFn_t function, void* user_data)) \
  X(cuEventCreate, 2000, (cudaEvent_t* event, unsigned int flags)) \
  X(cuEventRecord, 2000, (cudaEvent_t event, cudaStream_t stream)) \
  X(cuEventRecordWithFlags, 11010, (cudaEvent_t event, cudaStream_t stream, unsigned int flags)) \
  X(cuEventQuery, 2000, (cudaEvent_t event)) \
  X(cuEventSynchronize, 2000, (cudaEvent_t event)) \
  X(cuEventElapsedTime, 2000, (float* milliseconds, cudaEvent_t start, cudaEvent_t end)) \
  X(cuEventDestroy, 4000, (cudaEvent_t event)) \
  X(cuLibraryLoadData, 12000, (cudaLibrary_t* library, const void* code, int* jit_options, void** jit_values, unsigned int jit_count, int* options, void** values, unsigned int count)) \
  X(cuLibraryUnload, 12000, (cudaLibrary_t library)) \
  X(cuLibraryGetKernel, 12000, (cudaKernel_t* kernel, cudaLibrary_t library, const char* name)) \
  X(cuLibraryGetGlobal, 12000, (CUdeviceptr* address, size_t* bytes, cudaLibrary_t library, const char* name)) \
  X(cuKernelGetFunction, 12000, (cudaFunction_t* function, cudaKernel_t kernel)) \
  X(cuKernelGetAttribute, 12000, (int* value, int attribute, cudaKernel_t kernel, CUdevice device)) \
  X(cuKernelSetAttribute, 12000, (int attribute, int value, cudaKernel_t kernel, CUdevice device)) \
  X(cuLaunchKernel, 4000, (cudaFunction_t function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, cudaStream_t stream, void** arguments, void** extra)) \
  X(cuLaunchKernelEx, 11060, (const void* config, cudaFunction_t function, void** arguments, void** extra)) \
  X(cuLaunchCooperativeKernel, 9000, (cudaFunction_t function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, cudaStream_t stream, void** arguments)) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, (int* blocks, cudaFunction_t function, int block_threads, size_t shared_bytes, unsigned int flags))
// clang-format on

// The driver's functions. A member is null if the driver lacks the function,
// which matters only if it is called.
struct DriverCalls {
#define EMUCUDA_CALL_MEMBER(name, since, args) CUresult(*name) args = nullptr;
  EMUCUDA_RUNTIME_DRIVER_CALLS(EMUCUDA_CALL_MEMBER)
#undef EMUCUDA_CALL_MEMBER
  // The driver's resolver, which also serves cudaGetDriverEntryPoint.
  CUresult (*resolve)(const char* symbol, void** function, int cuda_version,
                      uint64_t flags,
                      driver::CUdriverProcAddressQueryResult* status) = nullptr;
};

// Loads libcuda.so.1, finds its functions and calls cuInit, once; the driver
// stays loaded. Returns InsufficientDriver if there is no driver of this CUDA
// major version, else the result of cuInit. Thread-safe.
cudaError_t LoadDriver();

// Valid whether or not LoadDriver succeeded, but members may be null.
const DriverCalls& Driver();

// Calls the driver: Ask<&DriverCalls::cuMemFree>(address).
template <auto kMember, typename... Args>
cudaError_t Ask(Args... args) {
  const auto function = Driver().*kMember;
  if (function == nullptr) return cudaErrorCallRequiresNewerDriver;
  return FromDriver(function(args...));
}

// The version of the runtime that is emulated, and of the oldest driver that it
// works with, as 1000 × major + 10 × minor.
inline constexpr int kRuntimeVersion = 13000;
inline constexpr int kRuntimeMajorVersion = 13000;

}  // namespace fineserve::cudart

#endif  // TOOLS_LAB_DEVICE_CUDART_DRIVER_CALLS_H_
