#include "tools/lab/device/machine/device_attributes.h"

namespace fineserve::emucuda {
namespace {

// The number after CUDA 13.0's last attribute.
constexpr unsigned kAttributeEnd = 149;

}  // namespace

ComputeCapability CapabilityOf(const Settings& settings) {
  return {settings.compute_capability / 10, settings.compute_capability % 10};
}

bool DeviceAttribute(driver::CUdevice_attribute attribute, int device,
                     const Settings& settings, int* value) {
  if (attribute == 0 || attribute >= kAttributeEnd) return false;
  switch (attribute) {
    case driver::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kMaxThreadsPerBlock;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1'000'000;  // kHz
      break;
    case driver::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = kMultiprocessors;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      *value = settings.exclusive ? kExclusiveProcess : 0;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = device + 1;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = CapabilityOf(settings).major;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = CapabilityOf(settings).minor;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case driver::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case driver::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case driver::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case driver::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case driver::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case driver::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case driver::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case driver::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case driver::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      *value = 1;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case driver::
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = settings.lacks_virtual_memory ? 0 : 1;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case driver::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      *value = settings.gpu_direct_rdma;
      break;
    case driver::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      *value = driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
      break;
    default:
      *value = 0;
      break;
  }
  return true;
}

}  // namespace fineserve::emucuda
