#ifndef TOOLS_LAB_DEVICE_CUDART_RUNTIME_API_H_
#define TOOLS_LAB_DEVICE_CUDART_RUNTIME_API_H_

// The prototypes of all exported functions, and the frame around each call.

#include <cstddef>
#include <new>

#include "tools/lab/device/cudart/api_list.h"
#include "tools/lab/device/cudart/current_device.h"
#include "tools/lab/device/cudart/driver_calls.h"
#include "tools/lab/device/cudart/error.h"

namespace fineserve::cudart {

// Runs `body`, remembers the error that it returns, and returns it. No
// exception leaves the library.
template <typename Body>
cudaError_t Call(Body&& body) {
  try {
    return Record(body());
  } catch (const std::bad_alloc&) {
    return Record(cudaErrorMemoryAllocation);
  }
}

// Does the same in the thread's context, which it creates if there is none.
template <typename Body>
cudaError_t CallInContext(Body&& body) {
  return Call([&] {
    const cudaError_t error = EnterContext();
    return error != cudaSuccess ? error : body();
  });
}

// Passes a call on to the driver, in the thread's context.
template <auto kMember, typename... Args>
cudaError_t Forward(Args... args) {
  return CallInContext([&] { return Ask<kMember>(args...); });
}

inline CUdeviceptr Address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

// Converts a pointer to an address into the driver's out parameter.
inline CUdeviceptr* AddressOut(void** pointer) {
  static_assert(sizeof(CUdeviceptr) == sizeof(void*));
  return reinterpret_cast<CUdeviceptr*>(pointer);
}

#pragma GCC visibility push(default)
extern "C" {
#define EMUCUDA_RUNTIME_PROTOTYPE(name, args) cudaError_t name args;
EMUCUDA_RUNTIME_API(EMUCUDA_RUNTIME_PROTOTYPE)
#undef EMUCUDA_RUNTIME_PROTOTYPE

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

// The functions that nvcc's host code calls (crt/host_runtime.h,
// crt/device_functions.h).
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** binary);
void __cudaUnregisterFatBinary(void** binary);
char __cudaInitModule(void** binary);
void __cudaRegisterFunction(void** binary, const char* host_function,
                            char* device_function, const char* name,
                            int thread_limit, void* thread, void* block,
                            dim3* block_dim, dim3* grid_dim, int* warp_size);
void __cudaRegisterVar(void** binary, char* host_variable, char* address,
                       const char* name, int external, size_t bytes,
                       int constant, int global);
void __cudaRegisterManagedVar(void** binary, void** host_variable,
                              char* address, const char* name, int external,
                              size_t bytes, int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                       size_t* shared_bytes, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                               void** arguments, size_t shared_bytes,
                               cudaStream_t stream);
}
#pragma GCC visibility pop

}  // namespace fineserve::cudart

#endif  // TOOLS_LAB_DEVICE_CUDART_RUNTIME_API_H_
