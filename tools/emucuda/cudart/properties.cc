#include "tools/emucuda/cudart/properties.h"

#include "tools/emucuda/cudart/driver_calls.h"

namespace fineserve::cudart {
namespace {

// A property, and the CU_DEVICE_ATTRIBUTE_* in cuda.h that it comes from.
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

// BLOCK_DIM_X to GRID_DIM_Z have consecutive numbers.
constexpr unsigned kMaxBlockDimX = 2;
constexpr unsigned kMaxGridDimX = 5;
constexpr unsigned kMemoryPoolHandleTypes = 119;

int Attribute(int device, unsigned attribute) {
  int value = 0;
  Ask<&DriverCalls::cuDeviceGetAttribute>(
      &value, static_cast<driver::CUdevice_attribute>(attribute), device);
  return value;
}

}  // namespace

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

}  // namespace fineserve::cudart
