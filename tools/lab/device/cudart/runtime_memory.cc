// Exported functions: memory, pools, sharing between processes.

#include <array>

#include "tools/lab/device/cudart/runtime_api.h"

namespace fineserve::cudart {
namespace {

// Values of CUpointer_attribute in cuda.h.
enum PointerAttribute : int {
  kMemoryType = 2,
  kDevicePointer = 3,
  kHostPointer = 4,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
};

// For elements of this size, no coalescing rule needs wider rows.
constexpr unsigned kPitchElementBytes = 4;

constexpr unsigned kHostPortable = 1;  // cudaHostAllocPortable

// Runs `body` to allocate `bytes`. Like NVIDIA's runtime, allocates nothing if
// `bytes` is 0.
template <typename Body>
cudaError_t Allocate(void** address, size_t bytes, Body body) {
  return CallInContext([&] {
    if (address == nullptr) return cudaErrorInvalidValue;
    *address = nullptr;
    return bytes == 0 ? cudaSuccess : body();
  });
}

cudaMemoryType TypeOf(unsigned driver_type, bool managed) {
  if (managed) return cudaMemoryTypeManaged;
  return static_cast<cudaMemoryType>(driver_type);  // CUmemorytype: 1, 2
}

cudaError_t Describe(const void* address, cudaPointerAttributes* out) {
  unsigned type = 0;
  CUdeviceptr device_pointer = 0;
  void* host_pointer = nullptr;
  int managed = 0, ordinal = kInvalidDeviceId;
  std::array<int, 5> wanted = {kMemoryType, kDevicePointer, kHostPointer,
                               kIsManaged, kDeviceOrdinal};
  std::array<void*, 5> values = {&type, &device_pointer, &host_pointer,
                                 &managed, &ordinal};
  const cudaError_t error = Ask<&DriverCalls::cuPointerGetAttributes>(
      static_cast<unsigned>(wanted.size()), wanted.data(), values.data(),
      Address(address));
  if (error != cudaSuccess) return error;
  *out = {};
  out->type = TypeOf(type, managed != 0);
  if (out->type == cudaMemoryTypeUnregistered) {
    out->device = kInvalidDeviceId;
    out->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  out->device = ordinal;
  out->devicePointer = reinterpret_cast<void*>(device_pointer);
  out->hostPointer = host_pointer;
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return Allocate(address, bytes, [&] {
    return Ask<&DriverCalls::cuMemAlloc>(AddressOut(address), bytes);
  });
}

cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width_bytes,
                            size_t rows) {
  return Allocate(address, width_bytes * rows, [&] {
    return Ask<&DriverCalls::cuMemAllocPitch>(
        AddressOut(address), pitch, width_bytes, rows, kPitchElementBytes);
  });
}

cudaError_t cudaMallocManaged(void** address, size_t bytes,
                              unsigned int flags) {
  return Allocate(address, bytes, [&] {
    return Ask<&DriverCalls::cuMemAllocManaged>(AddressOut(address), bytes,
                                                flags);
  });
}

cudaError_t cudaFree(void* address) {
  return CallInContext([&] {
    if (address == nullptr) return cudaSuccess;
    return Ask<&DriverCalls::cuMemFree>(Address(address));
  });
}

cudaError_t cudaHostAlloc(void** host, size_t bytes, unsigned int flags) {
  return Allocate(host, bytes, [&] {
    return Ask<&DriverCalls::cuMemHostAlloc>(host, bytes, flags);
  });
}

cudaError_t cudaMallocHost(void** host, size_t bytes) {
  return cudaHostAlloc(host, bytes, kHostPortable);
}

cudaError_t cudaFreeHost(void* host) {
  return CallInContext([&] {
    return host == nullptr ? cudaSuccess
                           : Ask<&DriverCalls::cuMemFreeHost>(host);
  });
}

cudaError_t cudaHostRegister(void* host, size_t bytes, unsigned int flags) {
  return Forward<&DriverCalls::cuMemHostRegister>(host, bytes, flags);
}

cudaError_t cudaHostUnregister(void* host) {
  return Forward<&DriverCalls::cuMemHostUnregister>(host);
}

cudaError_t cudaHostGetDevicePointer(void** address, void* host,
                                     unsigned int flags) {
  return Forward<&DriverCalls::cuMemHostGetDevicePointer>(AddressOut(address),
                                                          host, flags);
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* host) {
  return Forward<&DriverCalls::cuMemHostGetFlags>(flags, host);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return Forward<&DriverCalls::cuMemGetInfo>(free_bytes, total_bytes);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* address) {
  return CallInContext([&] {
    if (attributes == nullptr || address == nullptr) {
      return cudaErrorInvalidValue;
    }
    return Describe(address, attributes);
  });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  return Forward<&DriverCalls::cuIpcGetMemHandle>(handle, Address(address));
}

cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle,
                                 unsigned int flags) {
  return Forward<&DriverCalls::cuIpcOpenMemHandle>(AddressOut(address), handle,
                                                   flags);
}

cudaError_t cudaIpcCloseMemHandle(void* address) {
  return Forward<&DriverCalls::cuIpcCloseMemHandle>(Address(address));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle,
                                  cudaEvent_t event) {
  return Forward<&DriverCalls::cuIpcGetEventHandle>(handle, event);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event,
                                   cudaIpcEventHandle_t handle) {
  return Forward<&DriverCalls::cuIpcOpenEventHandle>(event, handle);
}

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
  return Allocate(address, bytes, [&] {
    return Ask<&DriverCalls::cuMemAllocAsync>(AddressOut(address), bytes,
                                              stream);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes,
                                    cudaMemPool_t pool, cudaStream_t stream) {
  return Allocate(address, bytes, [&] {
    return Ask<&DriverCalls::cuMemAllocFromPoolAsync>(AddressOut(address),
                                                      bytes, pool, stream);
  });
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return CallInContext([&] {
    if (address == nullptr) return cudaSuccess;
    return Ask<&DriverCalls::cuMemFreeAsync>(Address(address), stream);
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool,
                              const cudaMemPoolProps* props) {
  return Forward<&DriverCalls::cuMemPoolCreate>(pool, props);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return Forward<&DriverCalls::cuMemPoolDestroy>(pool);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attribute,
                                    void* value) {
  return Forward<&DriverCalls::cuMemPoolGetAttribute>(pool, attribute, value);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attribute,
                                    void* value) {
  return Forward<&DriverCalls::cuMemPoolSetAttribute>(pool, attribute, value);
}

cudaError_t cudaMemPoolGetAccess(int* flags, cudaMemPool_t pool,
                                 driver::CUmemLocation* location) {
  return Forward<&DriverCalls::cuMemPoolGetAccess>(flags, pool, location);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const driver::CUmemAccessDesc* access,
                                 size_t count) {
  return Forward<&DriverCalls::cuMemPoolSetAccess>(pool, access, count);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
  return Forward<&DriverCalls::cuMemPoolTrimTo>(pool, bytes_to_keep);
}

cudaError_t cudaMemPoolExportToShareableHandle(void* shareable,
                                               cudaMemPool_t pool, int type,
                                               unsigned int flags) {
  return Forward<&DriverCalls::cuMemPoolExportToShareableHandle>(
      shareable, pool, type, uint64_t{flags});
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* pool,
                                                 void* shareable, int type,
                                                 unsigned int flags) {
  return Forward<&DriverCalls::cuMemPoolImportFromShareableHandle>(
      pool, shareable, type, uint64_t{flags});
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return Forward<&DriverCalls::cuDeviceGetDefaultMemPool>(pool, device);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return Forward<&DriverCalls::cuDeviceGetMemPool>(pool, device);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return Forward<&DriverCalls::cuDeviceSetMemPool>(device, pool);
}

}  // namespace fineserve::cudart
