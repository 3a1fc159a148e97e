// Exported functions: legacy allocation, pinned memory, memory information.

#include "tools/lab/device/allocations/legacy_heap.h"
#include "tools/lab/device/allocations/pinned_memory.h"
#include "tools/lab/device/allocations/pool_table.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/find_block.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/stream/context.h"

namespace fineserve::driver {

using emucuda::BlockKind;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Devices;
using emucuda::Entry;
using emucuda::Heap;
using emucuda::Logged;
using emucuda::MemoryBlock;
using emucuda::Pinned;

namespace {

constexpr uint64_t kPitchAlignment = 512;

constexpr unsigned kHostAllocFlags = CU_MEMHOSTALLOC_PORTABLE |
                                     CU_MEMHOSTALLOC_DEVICEMAP |
                                     CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kHostRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult Allocate(Context& context, CUdeviceptr* address, uint64_t bytes) {
  return Heap().Allocate(context, Devices().memory(context.device()), bytes,
                         BlockKind::kDevice, address);
}

CUresult Free(CUdeviceptr address) {
  if (Heap().Free(address) == CUDA_SUCCESS) return CUDA_SUCCESS;
  return emucuda::Pools().Free(address, {}) ? CUDA_SUCCESS
                                            : CUDA_ERROR_INVALID_VALUE;
}

CUresult AllocatePitch(Context& context, CUdeviceptr* address, size_t* pitch,
                       size_t width_bytes, size_t rows) {
  *pitch = (width_bytes + kPitchAlignment - 1) & ~(kPitchAlignment - 1);
  uint64_t bytes;
  if (*pitch < width_bytes || __builtin_mul_overflow(*pitch, rows, &bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return Allocate(context, address, bytes);
}

CUresult AddressRange(CUdeviceptr address, CUdeviceptr* base, size_t* bytes) {
  MemoryBlock block;
  if (!emucuda::FindBlock(address, &block) || block.kind == BlockKind::kHost) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (base != nullptr) *base = block.base;
  if (bytes != nullptr) *bytes = block.bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return CallInContext(Entry::cuMemAlloc_v2, Logged(bytes),
                       [&](Context& context) {
                         if (address == nullptr)
                           return CUDA_ERROR_INVALID_VALUE;
                         return Allocate(context, address, bytes);
                       });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch,
                            size_t width_bytes, size_t rows,
                            unsigned int element_bytes) {
  return CallInContext(
      Entry::cuMemAllocPitch_v2, Logged(width_bytes, rows),
      [&](Context& context) {
        if (address == nullptr || pitch == nullptr ||
            (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        return AllocatePitch(context, address, pitch, width_bytes, rows);
      });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return CallInContext(Entry::cuMemFree_v2, Logged(address),
                       [&](Context& context) {
                         if (address == 0) return CUDA_SUCCESS;
                         if (const CUresult result = context.Synchronize())
                           return result;
                         return Free(address);
                       });
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return CallInContext(Entry::cuMemGetInfo_v2, [&](Context& context) {
    if (free_bytes == nullptr || total_bytes == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto& memory = Devices().memory(context.device());
    *total_bytes = memory.TotalBytes();
    *free_bytes = *total_bytes - memory.UsedBytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes,
                                 CUdeviceptr address) {
  return CallInContext(
      Entry::cuMemGetAddressRange_v2, Logged(address),
      [&](Context&) { return AddressRange(address, base, bytes); });
}

CUresult cuMemAllocHost_v2(void** host, size_t bytes) {
  return CallInContext(Entry::cuMemAllocHost_v2, Logged(bytes),
                       [&](Context& context) {
                         if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
                         return Pinned().Allocate(context, bytes, 0, host);
                       });
}

CUresult cuMemHostAlloc(void** host, size_t bytes, unsigned int flags) {
  return CallInContext(
      Entry::cuMemHostAlloc, Logged(bytes, flags), [&](Context& context) {
        if (host == nullptr || (flags & ~kHostAllocFlags) != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        return Pinned().Allocate(context, bytes, flags, host);
      });
}

CUresult cuMemFreeHost(void* host) {
  return CallInContext(Entry::cuMemFreeHost, Logged(host),
                       [&](Context& context) {
                         if (const CUresult result = context.Synchronize())
                           return result;
                         return Pinned().Free(host);
                       });
}

CUresult cuMemHostRegister_v2(void* host, size_t bytes, unsigned int flags) {
  return CallInContext(Entry::cuMemHostRegister_v2, Logged(host, bytes, flags),
                       [&](Context& context) {
                         if ((flags & ~kHostRegisterFlags) != 0)
                           return CUDA_ERROR_INVALID_VALUE;
                         return Pinned().Register(context, host, bytes, flags);
                       });
}

CUresult cuMemHostUnregister(void* host) {
  return CallInContext(Entry::cuMemHostUnregister, Logged(host),
                       [&](Context& context) {
                         if (const CUresult result = context.Synchronize())
                           return result;
                         return Pinned().Unregister(host);
                       });
}

// With unified addressing, device and host use the same address.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* host,
                                      unsigned int flags) {
  return CallInContext(
      Entry::cuMemHostGetDevicePointer_v2, Logged(host), [&](Context&) {
        if (address == nullptr || flags != 0 || !Pinned().Contains(host, 1)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        *address = reinterpret_cast<CUdeviceptr>(host);
        return CUDA_SUCCESS;
      });
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* host) {
  return CallInContext(Entry::cuMemHostGetFlags, Logged(host), [&](Context&) {
    MemoryBlock block;
    if (flags == nullptr ||
        !Pinned().Find(reinterpret_cast<CUdeviceptr>(host), &block)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = block.host_flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

// Not supported: there are no dma-buf descriptors here
// (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0).
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address,
                                       size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags) {
  return CallInContext(Entry::cuMemGetHandleForAddressRange,
                       Logged(address, bytes), [&](Context&) {
                         if (handle == nullptr || bytes == 0)
                           return CUDA_ERROR_INVALID_VALUE;
                         return CUDA_ERROR_NOT_SUPPORTED;
                       });
}

}  // namespace fineserve::driver
