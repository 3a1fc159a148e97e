// Exported functions: kernels, libraries, variables, and the functions that
// nvcc's host code calls.

#include <vector>

#include "tools/lab/device/cudart/registered_code.h"
#include "tools/lab/device/cudart/runtime_api.h"

namespace fineserve::cudart {
namespace {

// The configuration of a <<<...>>> launch between its two halves: it is
// evaluated but not yet launched.
struct CallConfiguration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<CallConfiguration> configurations;

// One field for each CUfunction_attribute of cuda.h, in the same order.
constexpr int cudaFuncAttributes::*kFunctionFields[] = {
    &cudaFuncAttributes::maxThreadsPerBlock,
    nullptr,  // SHARED_SIZE_BYTES, a size_t
    nullptr,  // CONST_SIZE_BYTES, a size_t
    nullptr,  // LOCAL_SIZE_BYTES, a size_t
    &cudaFuncAttributes::numRegs,
    &cudaFuncAttributes::ptxVersion,
    &cudaFuncAttributes::binaryVersion,
    &cudaFuncAttributes::cacheModeCA,
    &cudaFuncAttributes::maxDynamicSharedSizeBytes,
    &cudaFuncAttributes::preferredShmemCarveout,
    &cudaFuncAttributes::clusterDimMustBeSet,
    &cudaFuncAttributes::requiredClusterWidth,
    &cudaFuncAttributes::requiredClusterHeight,
    &cudaFuncAttributes::requiredClusterDepth,
    &cudaFuncAttributes::nonPortableClusterSizeAllowed,
    &cudaFuncAttributes::clusterSchedulingPolicyPreference,
};

Binary* BinaryOf(void** handle) { return reinterpret_cast<Binary*>(handle); }

// CUDA lets a CUkernel be used as its CUfunction in the current context.
cudaFunction_t FunctionOf(cudaKernel_t kernel) {
  return reinterpret_cast<cudaFunction_t>(kernel);
}

// Runs `body(kernel)` on the kernel behind a host function. Instead of a host
// function, the program may pass a kernel from cudaGetKernel or
// cudaLibraryGetKernel.
template <typename Body>
cudaError_t CallOnKernel(const void* function, Body body) {
  return CallInContext([&] {
    cudaKernel_t kernel = nullptr;
    cudaError_t error = FindKernel(function, &kernel);
    if (error == cudaErrorInvalidDeviceFunction && function != nullptr) {
      kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
      if (IsLibraryKernel(kernel)) error = cudaSuccess;
    }
    return error != cudaSuccess ? error : body(kernel);
  });
}

cudaError_t Launch(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                   size_t shared_bytes, cudaStream_t stream) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  return Ask<&DriverCalls::cuLaunchKernel>(
      FunctionOf(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
      static_cast<unsigned>(shared_bytes), stream, arguments,
      static_cast<void**>(nullptr));
}

cudaError_t ReadAttributes(cudaKernel_t kernel, cudaFuncAttributes* out) {
  int device = 0;
  if (const cudaError_t error = CurrentDevice(&device)) return error;
  *out = {};
  size_t cudaFuncAttributes::*const sizes[] = {
      nullptr, &cudaFuncAttributes::sharedSizeBytes,
      &cudaFuncAttributes::constSizeBytes, &cudaFuncAttributes::localSizeBytes};
  int attribute = 0;
  for (const auto field : kFunctionFields) {
    int value = 0;
    const cudaError_t error = Ask<&DriverCalls::cuKernelGetAttribute>(
        &value, attribute, kernel, device);
    if (error != cudaSuccess) return error;
    if (field != nullptr) {
      out->*field = value;
    } else {
      out->*sizes[attribute] = static_cast<size_t>(value);
    }
    ++attribute;
  }
  return cudaSuccess;
}

// Does the same if `out` is not null. The driver would check this, too, but
// only after loading the kernel.
template <typename T, typename Body>
cudaError_t CallOnKernelFor(const T* out, const void* function, Body body) {
  if (out == nullptr) return Record(cudaErrorInvalidValue);
  return CallOnKernel(function, body);
}

}  // namespace

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(AddBinary(wrapper));
}

void __cudaRegisterFatBinaryEnd(void** binary) {}

void __cudaUnregisterFatBinary(void** binary) {
  RemoveBinary(BinaryOf(binary));
}

// Returns 1: managed variables are ready, because there are none.
char __cudaInitModule(void** binary) { return 1; }

void __cudaRegisterFunction(void** binary, const char* host_function,
                            char* device_function, const char* name,
                            int thread_limit, void* thread, void* block,
                            dim3* block_dim, dim3* grid_dim, int* warp_size) {
  AddKernel(BinaryOf(binary), host_function, name);
}

void __cudaRegisterVar(void** binary, char* host_variable, char* address,
                       const char* name, int external, size_t bytes,
                       int constant, int global) {
  AddVariable(BinaryOf(binary), host_variable, name, bytes);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  return Call([&] {
    configurations.push_back({grid, block, shared_bytes, stream});
    return cudaSuccess;
  });
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                       size_t* shared_bytes, void* stream) {
  return Call([&] {
    if (configurations.empty()) return cudaErrorMissingConfiguration;
    const CallConfiguration last = configurations.back();
    configurations.pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared_bytes = last.shared_bytes;
    *static_cast<cudaStream_t*>(stream) = last.stream;
    return cudaSuccess;
  });
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return Call([&] { return FindKernel(function, kernel); });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                               void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return CallInContext([&] {
    return Launch(kernel, grid, block, arguments, shared_bytes, stream);
  });
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                             void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return CallOnKernel(function, [&](cudaKernel_t kernel) {
    return Launch(kernel, grid, block, arguments, shared_bytes, stream);
  });
}

// Ignores the launch attributes (clusters, programmatic dependencies,
// priorities): they control how a kernel is scheduled, and the emulated device
// schedules nothing.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                const void* function, void** arguments) {
  return CallOnKernelFor(config, function, [&](cudaKernel_t kernel) {
    return Launch(kernel, config->gridDim, config->blockDim, arguments,
                  config->dynamicSmemBytes, config->stream);
  });
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid,
                                        dim3 block, void** arguments,
                                        size_t shared_bytes,
                                        cudaStream_t stream) {
  return CallOnKernel(function, [&](cudaKernel_t kernel) {
    return Ask<&DriverCalls::cuLaunchCooperativeKernel>(
        FunctionOf(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
        static_cast<unsigned>(shared_bytes), stream, arguments);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                  const void* function) {
  return CallOnKernelFor(attributes, function, [&](cudaKernel_t kernel) {
    return ReadAttributes(kernel, attributes);
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, int attribute,
                                 int value) {
  return CallOnKernel(function, [&](cudaKernel_t kernel) {
    int device = 0;
    const cudaError_t error = CurrentDevice(&device);
    if (error != cudaSuccess) return error;
    return Ask<&DriverCalls::cuKernelSetAttribute>(attribute, value, kernel,
                                                   device);
  });
}

// The cache preference has no effect, because there is no cache to divide.
cudaError_t cudaFuncSetCacheConfig(const void* function, int config) {
  return CallOnKernel(function, [](cudaKernel_t) { return cudaSuccess; });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return Call([&] {
    return name == nullptr ? cudaErrorInvalidValue : KernelName(function, name);
  });
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return CallOnKernelFor(kernel, function, [&](cudaKernel_t found) {
    *kernel = found;
    return cudaSuccess;
  });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* out, const void* function) {
  return CallOnKernelFor(out, function, [&](cudaKernel_t kernel) {
    return Ask<&DriverCalls::cuKernelGetFunction>(out, kernel);
  });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, int attribute,
                                            int value, int device) {
  return Forward<&DriverCalls::cuKernelSetAttribute>(attribute, value, kernel,
                                                     device);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block_threads, size_t shared_bytes,
    unsigned int flags) {
  return CallOnKernelFor(blocks, function, [&](cudaKernel_t kernel) {
    using Calls = DriverCalls;
    return Ask<&Calls::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags>(
        blocks, FunctionOf(kernel), block_threads, shared_bytes, flags);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          const void* function,
                                                          int block_threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, function, block_threads, shared_bytes, 0);
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code,
                                int* jit_options, void** jit_values,
                                unsigned int jit_count, int* options,
                                void** values, unsigned int count) {
  return Forward<&DriverCalls::cuLibraryLoadData>(library, code, jit_options,
                                                  jit_values, jit_count,
                                                  options, values, count);
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return Forward<&DriverCalls::cuLibraryUnload>(library);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library,
                                 const char* name) {
  return CallInContext([&] {
    const cudaError_t error =
        Ask<&DriverCalls::cuLibraryGetKernel>(kernel, library, name);
    if (error == cudaSuccess) AddLibraryKernel(*kernel);
    return error;
  });
}

cudaError_t cudaLibraryGetGlobal(void** address, size_t* bytes,
                                 cudaLibrary_t library, const char* name) {
  return Forward<&DriverCalls::cuLibraryGetGlobal>(AddressOut(address), bytes,
                                                   library, name);
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return CallInContext([&] {
    if (address == nullptr) return cudaErrorInvalidValue;
    Variable variable;
    const cudaError_t error = FindVariable(symbol, &variable);
    if (error == cudaSuccess) *address = variable.address;
    return error;
  });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return Call([&] {
    return bytes == nullptr ? cudaErrorInvalidValue
                            : VariableBytes(symbol, bytes);
  });
}

}  // namespace fineserve::cudart
