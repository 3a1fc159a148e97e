// Compiled only where a CUDA toolkit is present: checks our own declarations
// against the toolkit's. Ours come first because cuda.h renames functions by
// macros.

#include <cstddef>

#include "tools/lab/device/cudart/api_list.h"
#include "tools/lab/device/cudart/driver_calls.h"
// The toolkit's headers come second.
#include <cudaTypedefs.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

namespace fineserve::cudart {
namespace {

#define EMUCUDA_SAME_VALUE(name) \
  static_assert(static_cast<long long>(name) == static_cast<long long>(::name))
#define EMUCUDA_SAME_SIZE(type)                   \
  static_assert(sizeof(type) == sizeof(::type) && \
                alignof(type) == alignof(::type))
#define EMUCUDA_SAME_OFFSET(type, field) \
  static_assert(offsetof(type, field) == offsetof(::type, field))

static_assert(kRuntimeVersion / 1000 == CUDART_VERSION / 1000);

#define EMUCUDA_SAME_ERROR(name, value, text) EMUCUDA_SAME_VALUE(name);
EMUCUDA_RUNTIME_ERRORS(EMUCUDA_SAME_ERROR)

EMUCUDA_SAME_SIZE(dim3);
EMUCUDA_SAME_SIZE(cudaPointerAttributes);
EMUCUDA_SAME_OFFSET(cudaPointerAttributes, hostPointer);
EMUCUDA_SAME_SIZE(cudaFuncAttributes);
EMUCUDA_SAME_OFFSET(cudaFuncAttributes, nonPortableClusterSizeAllowed);
EMUCUDA_SAME_SIZE(cudaLaunchConfig_t);
EMUCUDA_SAME_OFFSET(cudaLaunchConfig_t, stream);
EMUCUDA_SAME_SIZE(cudaMemPoolProps);
EMUCUDA_SAME_OFFSET(cudaMemPoolProps, location);
EMUCUDA_SAME_OFFSET(cudaMemPoolProps, usage);
EMUCUDA_SAME_SIZE(cudaIpcMemHandle_t);
EMUCUDA_SAME_SIZE(cudaIpcEventHandle_t);
EMUCUDA_SAME_SIZE(cudaDeviceProp);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, totalGlobalMem);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, major);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, multiProcessorCount);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, canMapHostMemory);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, surfaceAlignment);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, l2CacheSize);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, maxThreadsPerMultiProcessor);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, sharedMemPerBlockOptin);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, reservedSharedMemPerBlock);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, memoryPoolSupportedHandleTypes);
EMUCUDA_SAME_OFFSET(cudaDeviceProp, hostNumaMultinodeIpcSupported);
EMUCUDA_SAME_VALUE(cudaMemcpyDefault);
EMUCUDA_SAME_VALUE(cudaMemoryTypeManaged);
EMUCUDA_SAME_VALUE(cudaStreamCaptureModeRelaxed);
EMUCUDA_SAME_VALUE(cudaStreamCaptureStatusInvalidated);
EMUCUDA_SAME_VALUE(cudaDriverEntryPointVersionNotSufficent);
static_assert(kInvalidDeviceId == cudaInvalidDeviceId);

// Checks the attribute numbers in runtime_device.cc and runtime_memory.cc.
static_assert(cudaDevAttrMaxBlockDimX == 2 && cudaDevAttrMaxGridDimX == 5);
static_assert(cudaDevAttrMemoryPoolSupportedHandleTypes == 119);
static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == 2 &&
              CU_POINTER_ATTRIBUTE_DEVICE_POINTER == 3 &&
              CU_POINTER_ATTRIBUTE_HOST_POINTER == 4 &&
              CU_POINTER_ATTRIBUTE_IS_MANAGED == 8 &&
              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9);
static_assert(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE == 15);

template <typename R, typename S, typename... A, typename... B>
constexpr bool SameShape(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    // Some arguments are pointers to aggregates; their own size is compared.
    // NOLINTNEXTLINE(bugprone-sizeof-*)
    return ((sizeof(A) == sizeof(B)) && ...);
  }
}

// No warnings about deprecated functions: programs still call them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// Every runtime function takes the same arguments as NVIDIA's.
#define EMUCUDA_SAME_RUNTIME_SHAPE(name, args)                       \
  static_assert(SameShape(static_cast<cudaError_t(*) args>(nullptr), \
                          static_cast<decltype(&::name)>(nullptr)),  \
                #name);
EMUCUDA_RUNTIME_API(EMUCUDA_SAME_RUNTIME_SHAPE)

// Every driver function is requested by a version for which CUDA has a type,
// and called with arguments of as many bytes as that type takes.
#define EMUCUDA_SAME_DRIVER_SHAPE(name, since, args)                    \
  static_assert(SameShape(static_cast<CUresult(*) args>(nullptr),       \
                          static_cast<PFN_##name##_v##since>(nullptr)), \
                #name);
EMUCUDA_RUNTIME_DRIVER_CALLS(EMUCUDA_SAME_DRIVER_SHAPE)

}  // namespace
}  // namespace fineserve::cudart
