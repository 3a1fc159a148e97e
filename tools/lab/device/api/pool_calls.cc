// Exported functions: stream-ordered allocation and memory pools.

#include "tools/lab/device/allocations/pool_file.h"
#include "tools/lab/device/allocations/pool_table.h"
#include "tools/lab/device/allocations/shared_block.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/stream/capture.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::CallInContext;
using emucuda::CallOnDevice;
using emucuda::Context;
using emucuda::Descriptor;
using emucuda::Devices;
using emucuda::Entry;
using emucuda::Logged;
using emucuda::MemoryBlock;
using emucuda::MemPool;
using emucuda::Pools;
using emucuda::Require;

namespace {

CUmemoryPool DefaultPool(int device) {
  return Pools().Default(Devices().memory(device), device);
}

CUmemoryPool CurrentPool(int device) {
  return Pools().Current(Devices().memory(device), device);
}

// If `wanted` is null, allocates from the current pool of the stream's device.
CUresult Allocate(Context& context, CUdeviceptr* address, size_t bytes,
                  CUmemoryPool wanted, CUstream handle) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto stream = emucuda::FindStream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Graph nodes that allocate are not emulated.
  if (const auto capture = stream->capture()) {
    return capture->Invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if (wanted == nullptr) wanted = CurrentPool(stream->context().device());
  const auto pool = Pools().Find(wanted);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return pool->Allocate(bytes, *stream, address);
}

// Frees the memory behind a marker in the stream, which is ordered like any
// other work.
CUresult Free(Context& context, CUdeviceptr address, CUstream handle) {
  const auto stream = emucuda::FindStream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto& pools = Pools();
  MemoryBlock block;
  if (!pools.Find(address, &block) || block.base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = stream->context().Submit(
      *stream, {.after = {}, .run = [] {}, .is_work = false});
  if (result != CUDA_SUCCESS) return result;
  return pools.Free(address, stream->Tail()) ? CUDA_SUCCESS
                                             : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckPoolLocation(const CUmemLocation& location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return Devices().Has(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult Create(CUmemoryPool* pool, const CUmemPoolProps& props) {
  if (props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return props.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_ERROR_INVALID_VALUE;
  }
  if (props.handleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      props.handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (const CUresult result = CheckPoolLocation(props.location)) return result;
  auto& memory = Devices().memory(props.location.id);
  *pool = Pools().Create(memory, props, /*imported=*/false);
  return CUDA_SUCCESS;
}

CUresult Export(const MemPool& pool, int* fd) {
  Descriptor file;
  const CUresult result = emucuda::ExportPool(Devices(), pool, &file);
  if (result == CUDA_SUCCESS) *fd = file.Release();
  return result;
}

CUresult SetAccess(MemPool& pool, const CUmemAccessDesc& desc) {
  if (const CUresult result = CheckPoolLocation(desc.location)) return result;
  // As CUDA documents, a pool's own device cannot lose access to the pool.
  if (desc.location.id == pool.device() &&
      desc.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return pool.SetAccess(desc.location.id, desc.flags);
}

// Runs `body(pool)` on the pool behind a handle.
template <typename Body>
CUresult CallOnPool(Entry entry, CUmemoryPool handle, Body body) {
  const auto checked = [&] {
    const auto pool = Pools().Find(handle);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : body(*pool);
  };
  return Call(entry, Require::kHealthy, Logged(handle), checked);
}

// Runs `body(ordinal)` on the device at a location. Only device memory has
// pools here.
template <typename Body>
CUresult CallAt(Entry entry, const CUmemLocation* location,
                CUmemAllocationType type, Body body) {
  const auto checked = [&] {
    if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result = CheckPoolLocation(*location);
    return result == CUDA_SUCCESS ? body(location->id) : result;
  };
  return Call(entry, Require::kInit, checked);
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return CallInContext(
      Entry::cuMemAllocAsync, Logged(bytes, stream), [&](Context& context) {
        return Allocate(context, address, bytes, nullptr, stream);
      });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes,
                                 CUmemoryPool pool, CUstream stream) {
  return CallInContext(Entry::cuMemAllocFromPoolAsync,
                       Logged(bytes, pool, stream), [&](Context& context) {
                         if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
                         return Allocate(context, address, bytes, pool, stream);
                       });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return CallInContext(
      Entry::cuMemFreeAsync, Logged(address, stream),
      [&](Context& context) { return Free(context, address, stream); });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  return Call(Entry::cuMemPoolCreate, Require::kHealthy, [&] {
    if (pool == nullptr || props == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return Create(pool, *props);
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return Call(Entry::cuMemPoolDestroy, Require::kHealthy, Logged(pool),
              [&] { return Pools().Destroy(pool); });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
  return CallOnPool(Entry::cuMemPoolTrimTo, pool, [&](MemPool& p) {
    p.Trim(keep_bytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void* value) {
  return CallOnPool(Entry::cuMemPoolSetAttribute, pool, [&](MemPool& p) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return p.SetAttribute(attribute, value);
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void* value) {
  return CallOnPool(Entry::cuMemPoolGetAttribute, pool, [&](MemPool& p) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return p.GetAttribute(attribute, value);
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* desc,
                            size_t count) {
  return CallOnPool(Entry::cuMemPoolSetAccess, pool, [&](MemPool& p) {
    if (desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
      result = SetAccess(p, desc[i]);
    }
    return result;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool,
                            CUmemLocation* location) {
  return CallOnPool(Entry::cuMemPoolGetAccess, pool, [&](MemPool& p) {
    if (flags == nullptr || location == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult result = CheckPoolLocation(*location)) return result;
    *flags = p.Access(location->id);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolExportToShareableHandle(void* shareable, CUmemoryPool pool,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  return CallOnPool(Entry::cuMemPoolExportToShareableHandle, pool,
                    [&](MemPool& p) {
                      if (shareable == nullptr || flags != 0 ||
                          type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
                        return CUDA_ERROR_INVALID_VALUE;
                      }
                      return Export(p, static_cast<int*>(shareable));
                    });
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* shareable,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  return Call(Entry::cuMemPoolImportFromShareableHandle, Require::kHealthy,
              Logged(shareable), [&] {
                if (pool == nullptr || flags != 0 ||
                    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                // The pointer itself holds the descriptor's number.
                const auto fd =
                    static_cast<int>(reinterpret_cast<intptr_t>(shareable));
                return emucuda::ImportPool(Devices(), fd, Pools(), pool);
              });
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* exported,
                                CUdeviceptr address) {
  return Call(
      Entry::cuMemPoolExportPointer, Require::kHealthy, Logged(address), [&] {
        MemoryBlock block;
        if (exported == nullptr || !Pools().Find(address, &block) ||
            block.pool->props().handleTypes == CU_MEM_HANDLE_TYPE_NONE ||
            block.pool->imported()) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        Encode(Share(Devices(), block), exported);
        return CUDA_SUCCESS;
      });
}

CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool,
                                CUmemPoolPtrExportData* exported) {
  return CallOnPool(Entry::cuMemPoolImportPointer, pool, [&](MemPool& p) {
    if (address == nullptr || exported == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return p.Import(Devices(), emucuda::Decode(*exported), address);
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return CallOnDevice(Entry::cuDeviceGetDefaultMemPool, device, [&] {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = DefaultPool(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return CallOnDevice(Entry::cuDeviceGetMemPool, device, [&] {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = CurrentPool(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return CallOnDevice(Entry::cuDeviceSetMemPool, device,
                      [&] { return Pools().SetCurrent(pool, device); });
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                CUmemAllocationType type) {
  return CallAt(Entry::cuMemGetDefaultMemPool, location, type, [&](int device) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = DefaultPool(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                         CUmemAllocationType type) {
  return CallAt(Entry::cuMemGetMemPool, location, type, [&](int device) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = CurrentPool(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                         CUmemoryPool pool) {
  return CallAt(Entry::cuMemSetMemPool, location, type,
                [&](int device) { return Pools().SetCurrent(pool, device); });
}

}  // namespace fineserve::driver
