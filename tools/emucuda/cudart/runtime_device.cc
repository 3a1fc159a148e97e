// Exported functions: devices, versions, peers, driver entry points.

#include <cstring>

#include "tools/emucuda/cudart/properties.h"
#include "tools/emucuda/cudart/runtime_api.h"
#include "tools/emucuda/cudart/runtime_version.h"

namespace fineserve::cudart {
namespace {

// Runs `body` once the driver is loaded and `out` is given.
template <typename Body>
cudaError_t CallOnDriver(const void* out, Body body) {
  return Call([&] {
    if (out == nullptr) return cudaErrorInvalidValue;
    const cudaError_t error = LoadDriver();
    return error != cudaSuccess ? error : body();
  });
}

template <typename Body>
cudaError_t CallOnPeer(int peer, Body body) {
  return CallInContext([&] {
    CUcontext context = nullptr;
    const cudaError_t error = PrimaryContext(peer, &context);
    return error != cudaSuccess ? error : body(context);
  });
}

cudaError_t FindEntryPoint(const char* symbol, void** function, int version,
                           uint64_t flags,
                           cudaDriverEntryPointQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t error = LoadDriver()) return error;
  driver::CUdriverProcAddressQueryResult found;
  const cudaError_t error =
      FromDriver(Driver().resolve(symbol, function, version, flags, &found));
  if (status == nullptr) return error;
  *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  // A caller that asks for the status learns of a missing symbol from the
  // status alone.
  return error == cudaErrorSymbolNotFound ? cudaSuccess : error;
}

}  // namespace

cudaError_t cudaDriverGetVersion(int* version) {
  return Call([&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = 0;  // a missing driver is not an error
    if (LoadDriver() == cudaErrorInsufficientDriver &&
        Driver().cuDriverGetVersion == nullptr) {
      return cudaSuccess;
    }
    return Ask<&DriverCalls::cuDriverGetVersion>(version);
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return Call([&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = kRuntimeVersion;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return CallOnDriver(
      count, [&] { return Ask<&DriverCalls::cuDeviceGetCount>(count); });
}

cudaError_t cudaGetDevice(int* device) {
  return CallOnDriver(device, [&] { return CurrentDevice(device); });
}

cudaError_t cudaSetDevice(int device) {
  return Call([&] { return SelectDevice(device); });
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags,
                           unsigned int flags) {
  return Call([&] {
    CUcontext context = nullptr;
    return PrimaryContext(device, &context);
  });
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return CallOnDriver(flags, [&] {
    int device = 0, active = 0;
    const cudaError_t error = CurrentDevice(&device);
    if (error != cudaSuccess) return error;
    return Ask<&DriverCalls::cuDevicePrimaryCtxGetState>(device, flags,
                                                         &active);
  });
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  return CallOnDriver(&flags, [&] {
    int device = 0;
    const cudaError_t error = CurrentDevice(&device);
    if (error != cudaSuccess) return error;
    return Ask<&DriverCalls::cuDevicePrimaryCtxSetFlags>(device, flags);
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return CallOnDriver(prop, [&] { return ReadProperties(device, prop); });
}

cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return CallOnDriver(value, [&] {
    return Ask<&DriverCalls::cuDeviceGetAttribute>(
        value, static_cast<driver::CUdevice_attribute>(attribute), device);
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* pci_bus_id, int capacity, int device) {
  return CallOnDriver(pci_bus_id, [&] {
    return Ask<&DriverCalls::cuDeviceGetPCIBusId>(pci_bus_id, capacity, device);
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Forward<&DriverCalls::cuCtxGetStreamPriorityRange>(least, greatest);
}

cudaError_t cudaDeviceGetLimit(size_t* value, int limit) {
  return Forward<&DriverCalls::cuCtxGetLimit>(value, limit);
}

cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
  return Forward<&DriverCalls::cuCtxSetLimit>(limit, value);
}

cudaError_t cudaDeviceSynchronize() {
  return Forward<&DriverCalls::cuCtxSynchronize>();
}

cudaError_t cudaDeviceReset() { return Call(ResetDevice); }

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return CallOnDriver(can, [&] {
    return Ask<&DriverCalls::cuDeviceCanAccessPeer>(can, device, peer);
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return CallOnPeer(peer, [&](CUcontext context) {
    return Ask<&DriverCalls::cuCtxEnablePeerAccess>(context, flags);
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return CallOnPeer(peer, [&](CUcontext context) {
    return Ask<&DriverCalls::cuCtxDisablePeerAccess>(context);
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, int attribute, int from,
                                      int to) {
  return CallOnDriver(value, [&] {
    return Ask<&DriverCalls::cuDeviceGetP2PAttribute>(value, attribute, from,
                                                      to);
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned int version,
    unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return Call([&] {
    return FindEntryPoint(symbol, function, static_cast<int>(version), flags,
                          status);
  });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                    unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, kRuntimeVersion,
                                          flags, status);
}

// The private tables are NVIDIA's, and we do not provide them.
cudaError_t cudaGetExportTable(const void** table, const driver::CUuuid* id) {
  return Call([&] {
    if (table == nullptr || id == nullptr) return cudaErrorInvalidValue;
    *table = nullptr;
    return cudaErrorNotSupported;
  });
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }

cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaGetLastError() { return TakeLastError(); }

cudaError_t cudaPeekAtLastError() { return LastError(); }

const char* cudaGetErrorName(cudaError_t error) { return ErrorName(error); }

const char* cudaGetErrorString(cudaError_t error) { return ErrorText(error); }

}  // namespace fineserve::cudart
