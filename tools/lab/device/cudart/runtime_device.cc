// Exported functions: devices, versions, peers, driver entry points.

#include "tools/lab/device/cudart/driver_calls.h"
#include "tools/lab/device/cudart/error.h"
#include "tools/lab/device/cudart/runtime_api.h"

namespace fineserve::cudart {
namespace {

// A property, and the CU_DEVICE_ATTRIBUTE_* in cuda.h from which it is read.
template <typename Field>
struct Source {
  Field cudaDeviceProp::*field;
  unsigned attribute;
};

constexpr Source<int> kInts[] = {
    {&cudaDeviceProp::maxThreadsPerBlock, 1},
    {&cudaDeviceProp::regsPerBlock, 12},
    {&cudaDeviceProp::warpSize, 10},
    {&cudaDeviceProp::major, 75},
    {&cudaDeviceProp::minor, 76},
    {&cudaDeviceProp::multiProcessorCount, 16},
    {&cudaDeviceProp::integrated, 18},
    {&cudaDeviceProp::canMapHostMemory, 19},
    {&cudaDeviceProp::concurrentKernels, 31},
    {&cudaDeviceProp::ECCEnabled, 32},
    {&cudaDeviceProp::pciBusID, 33},
    {&cudaDeviceProp::pciDeviceID, 34},
    {&cudaDeviceProp::pciDomainID, 50},
    {&cudaDeviceProp::tccDriver, 35},
    {&cudaDeviceProp::asyncEngineCount, 40},
    {&cudaDeviceProp::unifiedAddressing, 41},
    {&cudaDeviceProp::memoryBusWidth, 37},
    {&cudaDeviceProp::l2CacheSize, 38},
    {&cudaDeviceProp::persistingL2CacheMaxSize, 108},
    {&cudaDeviceProp::maxThreadsPerMultiProcessor, 39},
    {&cudaDeviceProp::streamPrioritiesSupported, 78},
    {&cudaDeviceProp::globalL1CacheSupported, 79},
    {&cudaDeviceProp::localL1CacheSupported, 80},
    {&cudaDeviceProp::regsPerMultiprocessor, 82},
    {&cudaDeviceProp::managedMemory, 83},
    {&cudaDeviceProp::isMultiGpuBoard, 84},
    {&cudaDeviceProp::multiGpuBoardGroupID, 85},
    {&cudaDeviceProp::hostNativeAtomicSupported, 86},
    {&cudaDeviceProp::pageableMemoryAccess, 88},
    {&cudaDeviceProp::concurrentManagedAccess, 89},
    {&cudaDeviceProp::computePreemptionSupported, 90},
    {&cudaDeviceProp::canUseHostPointerForRegisteredMem, 91},
    {&cudaDeviceProp::cooperativeLaunch, 95},
    {&cudaDeviceProp::pageableMemoryAccessUsesHostPageTables, 100},
    {&cudaDeviceProp::directManagedMemAccessFromHost, 101},
    {&cudaDeviceProp::maxBlocksPerMultiProcessor, 106},
    {&cudaDeviceProp::accessPolicyMaxWindowSize, 109},
    {&cudaDeviceProp::hostRegisterSupported, 99},
    {&cudaDeviceProp::sparseCudaArraySupported, 112},
    {&cudaDeviceProp::hostRegisterReadOnlySupported, 113},
    {&cudaDeviceProp::timelineSemaphoreInteropSupported, 114},
    {&cudaDeviceProp::memoryPoolsSupported, 115},
    {&cudaDeviceProp::gpuDirectRDMASupported, 116},
    {&cudaDeviceProp::gpuDirectRDMAWritesOrdering, 118},
    {&cudaDeviceProp::ipcEventSupported, 125},
    {&cudaDeviceProp::clusterLaunch, 120},
    {&cudaDeviceProp::mpsEnabled, 133},
};

constexpr Source<size_t> kSizes[] = {
    {&cudaDeviceProp::sharedMemPerBlock, 8},
    {&cudaDeviceProp::totalConstMem, 9},
    {&cudaDeviceProp::memPitch, 11},
    {&cudaDeviceProp::textureAlignment, 14},
    {&cudaDeviceProp::texturePitchAlignment, 51},
    {&cudaDeviceProp::surfaceAlignment, 30},
    {&cudaDeviceProp::sharedMemPerMultiprocessor, 81},
    {&cudaDeviceProp::sharedMemPerBlockOptin, 97},
    {&cudaDeviceProp::reservedSharedMemPerBlock, 111},
};

// BLOCK_DIM_X to GRID_DIM_Z are numbered consecutively.
constexpr unsigned kMaxBlockDimX = 2;
constexpr unsigned kMaxGridDimX = 5;
constexpr unsigned kMemoryPoolHandleTypes = 119;

int Attribute(int device, unsigned attribute) {
  int value = 0;
  Ask<&DriverCalls::cuDeviceGetAttribute>(
      &value, static_cast<driver::CUdevice_attribute>(attribute), device);
  return value;
}

// Fills `prop` from the driver's attributes of the device; texture and surface
// limits stay 0. The driver must be loaded. Returns InvalidDevice if there is
// no such device.
cudaError_t ReadProperties(int device, cudaDeviceProp* prop) {
  *prop = {};
  if (const cudaError_t error = Ask<&DriverCalls::cuDeviceGetName>(
          prop->name, static_cast<int>(sizeof(prop->name)), device))
    return error;
  Ask<&DriverCalls::cuDeviceGetUuid>(&prop->uuid, device);
  Ask<&DriverCalls::cuDeviceTotalMem>(&prop->totalGlobalMem, device);
  for (const auto& [field, attribute] : kInts) {
    prop->*field = Attribute(device, attribute);
  }
  for (const auto& [field, attribute] : kSizes) {
    prop->*field = static_cast<size_t>(Attribute(device, attribute));
  }
  for (unsigned i = 0; i < 3; ++i) {
    prop->maxThreadsDim[i] = Attribute(device, kMaxBlockDimX + i);
    prop->maxGridSize[i] = Attribute(device, kMaxGridDimX + i);
  }
  prop->memoryPoolSupportedHandleTypes =
      static_cast<unsigned>(Attribute(device, kMemoryPoolHandleTypes));
  return cudaSuccess;
}

// Runs `body` if `out` is given, after loading the driver.
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
  // If the caller asks for the status, only the status reports a missing
  // symbol.
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
