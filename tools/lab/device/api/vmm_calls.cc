// Exported functions: virtual memory management. None of them needs a context.

#include <cstdint>
#include <memory>
#include <utility>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/machine/environment_settings.h"
#include "tools/lab/device/stream/context.h"
#include "tools/lab/device/stream/current_context.h"
#include "tools/lab/device/virtual_memory/address_space.h"
#include "tools/lab/device/virtual_memory/memory_handles.h"

namespace fineserve::driver {

using emucuda::Addresses;
using emucuda::Allocation;
using emucuda::Call;
using emucuda::Devices;
using emucuda::Entry;
using emucuda::Handles;
using emucuda::kGranularity;
using emucuda::Logged;
using emucuda::MemoryObject;
using emucuda::Require;

namespace {

// Host memory is a feature that the emulator lacks; any other unknown location
// is an error.
CUresult CheckMappedLocation(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_HOST ||
      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Devices().Has(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CheckProperties(const CUmemAllocationProp& prop) {
  if (emucuda::DriverSettings().lacks_virtual_memory) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop.allocFlags.gpuDirectRDMACapable != 0 &&
      emucuda::DriverSettings().gpu_direct_rdma == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CheckMappedLocation(prop.location);
}

CUresult Create(CUmemGenericAllocationHandle* handle, size_t bytes,
                const CUmemAllocationProp& prop) {
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckProperties(prop)) return result;
  auto& memory = Devices().memory(prop.location.id);
  std::shared_ptr<Allocation> allocation;
  if (const CUresult result = memory.Allocate(bytes, &allocation)) {
    return result;
  }
  *handle = Handles().Add(prop.location.id, prop, std::move(allocation));
  return CUDA_SUCCESS;
}

CUresult Export(const MemoryObject& object, int* fd) {
  if (object.prop.requestedHandleTypes !=
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Descriptor descriptor;
  const CUresult result =
      object.allocation->memory().Export(*object.allocation, &descriptor);
  if (result == CUDA_SUCCESS) *fd = descriptor.Release();
  return result;
}

CUresult Import(int fd, CUmemGenericAllocationHandle* handle) {
  for (int device = 0; Devices().Has(device); ++device) {
    std::shared_ptr<Allocation> allocation;
    const CUresult result = Devices().memory(device).Import(fd, &allocation);
    if (result == CUDA_ERROR_INVALID_VALUE) continue;
    if (result != CUDA_SUCCESS) return result;
    // As with driver 580.159, the handle does not say whether the memory was
    // created for network cards.
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
        .win32HandleMetaData = nullptr,
        .allocFlags = {}};
    *handle = Handles().Add(device, prop, std::move(allocation));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Finds the object that is mapped at an address. Returns INVALID_VALUE for
// memory from cuMemAlloc, too: it has no handle, and the functions here must
// not touch it.
CUresult MappedAt(CUdeviceptr address,
                  std::shared_ptr<const MemoryObject>* object) {
  CUdeviceptr base;
  uint64_t bytes;
  const CUresult result =
      Addresses().GetMapping(address, &base, &bytes, object);
  if (result != CUDA_SUCCESS) return result;
  return (*object)->handle != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// True if one call may cover all mappings of the range.
bool AtOnce(CUdeviceptr address, size_t bytes) {
  return !emucuda::DriverSettings().aliases_apart ||
         !Addresses().HasAliases(address, bytes);
}

// Waits if unmapping_waits is set: cuMemUnmap and cuMemSetAccess may be
// synchronous (cuda.h's note_sync).
void AwaitWork() {
  const emucuda::Context* context = emucuda::CurrentContext();
  if (context != nullptr && emucuda::DriverSettings().unmapping_waits) {
    context->AwaitWork();
  }
}

// True if the device reaches all memory that is mapped in the range.
bool Reaches(int device, CUdeviceptr address, size_t bytes) {
  if (!emucuda::DriverSettings().lacks_peers) return true;
  CUdeviceptr base = 0;
  uint64_t mapped = 0;
  std::shared_ptr<const MemoryObject> object;
  for (CUdeviceptr at = address; at < address + bytes; at = base + mapped) {
    if (Addresses().GetMapping(at, &base, &mapped, &object) != CUDA_SUCCESS) {
      return true;  // an error of another kind
    }
    if (object->device != device) return false;
  }
  return true;
}

CUresult SetAccess(CUdeviceptr address, size_t bytes,
                   const CUmemAccessDesc& desc) {
  if (!AtOnce(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckMappedLocation(desc.location)) return result;
  if (desc.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
      desc.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      desc.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (desc.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
      !Reaches(desc.location.id, address, bytes)) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;  // which, is not documented
  }
  return Addresses().SetAccess(address, bytes, desc.location.id, desc.flags);
}

}  // namespace

CUresult cuMemGetAllocationGranularity(
    size_t* bytes, const CUmemAllocationProp* prop,
    CUmemAllocationGranularity_flags option) {
  return Call(Entry::cuMemGetAllocationGranularity, Require::kHealthy, [&] {
    if (bytes == nullptr || prop == nullptr || option > 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult result = CheckProperties(*prop)) return result;
    *bytes = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  return Call(Entry::cuMemCreate, Require::kHealthy, Logged(bytes), [&] {
    if (handle == nullptr || prop == nullptr || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return Create(handle, bytes, *prop);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return Call(Entry::cuMemRelease, Require::kHealthy, Logged(handle),
              [&] { return Handles().Release(handle); });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes,
                             size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  return Call(Entry::cuMemAddressReserve, Require::kHealthy,
              Logged(bytes, alignment, wanted), [&] {
                if (address == nullptr || flags != 0)
                  return CUDA_ERROR_INVALID_VALUE;
                return Addresses().Reserve(bytes, alignment, wanted, address);
              });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return Call(Entry::cuMemAddressFree, Require::kHealthy,
              Logged(address, bytes),
              [&] { return Addresses().Free(address, bytes); });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return Call(Entry::cuMemMap, Require::kHealthy,
              Logged(address, bytes, handle), [&] {
                if (offset != 0) return CUDA_ERROR_NOT_SUPPORTED;
                if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
                auto object = Handles().Find(handle);
                if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
                return Addresses().Map(address, bytes, std::move(object));
              });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return Call(Entry::cuMemUnmap, Require::kHealthy, Logged(address, bytes),
              [&] {
                std::shared_ptr<const MemoryObject> object;
                if (const CUresult result = MappedAt(address, &object))
                  return result;
                if (!AtOnce(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
                AwaitWork();
                return Addresses().Unmap(address, bytes);
              });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes,
                        const CUmemAccessDesc* desc, size_t count) {
  return Call(Entry::cuMemSetAccess, Require::kHealthy,
              Logged(address, bytes, count), [&] {
                if (desc == nullptr || count == 0)
                  return CUDA_ERROR_INVALID_VALUE;
                std::shared_ptr<const MemoryObject> object;
                CUresult result = MappedAt(address, &object);
                AwaitWork();
                for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
                  result = SetAccess(address, bytes, desc[i]);
                }
                return result;
              });
}

CUresult cuMemGetAccess(unsigned long long* flags,
                        const CUmemLocation* location, CUdeviceptr address) {
  return Call(Entry::cuMemGetAccess, Require::kHealthy, Logged(address), [&] {
    if (flags == nullptr || location == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult result = CheckMappedLocation(*location)) return result;
    CUmemAccess_flags access;
    const CUresult result =
        Addresses().GetAccess(address, location->id, &access);
    if (result == CUDA_SUCCESS) *flags = access;
    return result;
  });
}

CUresult cuMemExportToShareableHandle(void* shareable,
                                      CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  return Call(Entry::cuMemExportToShareableHandle, Require::kHealthy,
              Logged(handle), [&] {
                if (shareable == nullptr || flags != 0 ||
                    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                const auto object = Handles().Find(handle);
                if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
                if (!emucuda::NodesOpen()) return CUDA_ERROR_OPERATING_SYSTEM;
                return Export(*object, static_cast<int*>(shareable));
              });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                        void* shareable,
                                        CUmemAllocationHandleType type) {
  return Call(Entry::cuMemImportFromShareableHandle, Require::kHealthy,
              Logged(shareable), [&] {
                if (handle == nullptr ||
                    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                // The pointer itself holds the descriptor's number.
                return Import(
                    static_cast<int>(reinterpret_cast<intptr_t>(shareable)),
                    handle);
              });
}

CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  return Call(Entry::cuMemGetAllocationPropertiesFromHandle, Require::kHealthy,
              Logged(handle), [&] {
                const auto object = Handles().Find(handle);
                if (prop == nullptr || object == nullptr) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                *prop = object->prop;
                return CUDA_SUCCESS;
              });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                     void* address) {
  return Call(Entry::cuMemRetainAllocationHandle, Require::kHealthy,
              Logged(address), [&] {
                if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
                std::shared_ptr<const MemoryObject> object;
                const CUresult result =
                    MappedAt(reinterpret_cast<CUdeviceptr>(address), &object);
                if (result != CUDA_SUCCESS) return result;
                *handle = object->handle;
                Handles().Retain(std::move(object));
                return CUDA_SUCCESS;
              });
}

// The devices have no multicast objects.
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t,
                            CUmemGenericAllocationHandle handle, size_t, size_t,
                            unsigned long long) {
  return Call(Entry::cuMulticastBindMem, Require::kHealthy,
              Logged(multicast, handle),
              [] { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t,
                             CUdeviceptr address, size_t, unsigned long long) {
  return Call(Entry::cuMulticastBindAddr, Require::kHealthy,
              Logged(multicast, address),
              [] { return CUDA_ERROR_NOT_SUPPORTED; });
}

}  // namespace fineserve::driver
