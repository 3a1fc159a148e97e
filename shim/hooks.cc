// The exported functions. Each is a guest in somebody else's process: decide
// in a few instructions whether the call concerns us, else leave by a tail
// call. Nothing here may throw, abort, or touch a signal handler.

#include "kernels/driver/prototypes.h"
#include "shim/driver.h"
#include "shim/fineserve_kv.h"
#include "shim/hook_table.h"
#include "shim/process.h"
#include "shim/resolve.h"
#include "shim/settings.h"
#include "shim/thread_state.h"

#define FINESERVE_EXPORT extern "C" __attribute__((visibility("default")))
// The return address of the hooked call. A macro: it means the hook's frame.
#define FINESERVE_CALLER __builtin_return_address(0)

// loader_stubs.S
extern "C" void* dlsym(void* handle, const char* name) noexcept;
extern "C" void* dlvsym(void* handle, const char* name,
                        const char* version) noexcept;
extern "C" void* dlopen(const char* file, int flags) noexcept;
extern "C" void* dlmopen(long space, const char* file, int flags) noexcept;

namespace fineserve::driver {

using abi::Path;
using shim::AllocationCall;
using shim::CallOptional;
using shim::g_allocator;
using shim::g_mappings;
using shim::g_ranges;
using shim::g_real_mem_alloc;
using shim::g_real_mem_free;
using shim::Hook;
using shim::MemoryKind;
using shim::Original;

namespace {

// After the driver has answered: its answer counts only where it is the ABI
// that our function has.
void Substitute(const char* name, int cuda_version, uint64_t flags, Path path,
                void** function) {
  const Hook hook = shim::HookForRequest(name, cuda_version, flags);
  if (hook == Hook::kNone || *function == nullptr || shim::Disabled()) return;
  shim::g_allocator.scoreboard().CountUse(hook, path);
  *function = shim::HookAddress(hook);
}

// The default stream as a per-thread variant means it.
CUstream PerThread(CUstream stream) {
  return stream != nullptr ? stream
                           : reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD);
}

// Every allocation but cuMemAlloc_v2, whose fast path is its own.
CUresult Allocate(const AllocationCall& call, CUdeviceptr* address) {
  shim::ThreadState& thread = shim::t_state;
  if (call.bytes >= thread.fast_limit) {
    return shim::AllocateSlowly(call, address);
  }
  // A registered thread has a driver.
  ++thread.small_allocations;
  thread.small_bytes += call.bytes;
  return call.original(shim::RealDriver()->entry);
}

CUresult Pass(const Original& original) {
  const shim::Driver* real = shim::RealDriver();
  return real == nullptr ? CUDA_ERROR_NOT_INITIALIZED : original(real->entry);
}

CUresult FreeAsync(Hook hook, CUdeviceptr address, CUstream stream,
                   const Original& original) {
  if (g_ranges.MayHold(address)) {
    return shim::FreeAsyncSlowly(hook, address, stream, original);
  }
  return Pass(original);
}

// For calls about handles: only a process that holds some of ours pays more
// than a load.
template <typename Ask>
CUresult AskIfHandles(Hook hook, const Original& original, Ask ask) {
  return g_allocator.holds_handles() ? shim::AskAllocator(hook, original, ask)
                                     : Pass(original);
}

// For calls about an address.
template <typename Ask>
CUresult AskIfHeld(CUdeviceptr address, Hook hook, const Original& original,
                   Ask ask) {
  const bool may_hold =
      g_ranges.MayHold(address) || g_mappings.MayHold(address);
  return may_hold && !g_allocator.forked()
             ? shim::AskAllocator(hook, original, ask)
             : Pass(original);
}

}  // namespace

FINESERVE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  shim::ThreadState& thread = shim::t_state;
  if (bytes < thread.fast_limit) [[likely]] {
    ++thread.small_allocations;
    thread.small_bytes += bytes;
    return g_real_mem_alloc.load(std::memory_order_relaxed)(address, bytes);
  }
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemAlloc_v2, address, bytes);
  };
  return shim::AllocateSlowly(
      {Hook::kMemAlloc, bytes, FINESERVE_CALLER, Original(call)}, address);
}

FINESERVE_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address,
                                             size_t* pitch, size_t width_bytes,
                                             size_t rows,
                                             unsigned element_bytes) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemAllocPitch_v2, address, pitch, width_bytes,
                        rows, element_bytes);
  };
  return Allocate({Hook::kMemAllocPitch, width_bytes * rows, FINESERVE_CALLER,
                   Original(call), MemoryKind::kOther},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes,
                                            unsigned flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemAllocManaged, address, bytes, flags);
  };
  return Allocate({Hook::kMemAllocManaged, bytes, FINESERVE_CALLER,
                   Original(call), MemoryKind::kOther},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes,
                                          CUstream stream) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemAllocAsync, address, bytes, stream);
  };
  return Allocate({Hook::kMemAllocAsync, bytes, FINESERVE_CALLER,
                   Original(call), MemoryKind::kStreamOrdered, stream},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address,
                                               size_t bytes, CUstream stream) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemAllocAsync_ptsz, address, bytes, stream);
  };
  return Allocate(
      {Hook::kMemAllocAsyncPtsz, bytes, FINESERVE_CALLER, Original(call),
       MemoryKind::kStreamOrdered, PerThread(stream)},
      address);
}

FINESERVE_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address,
                                                  size_t bytes,
                                                  CUmemoryPool pool,
                                                  CUstream stream) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemAllocFromPoolAsync, address, bytes, pool,
                        stream);
  };
  return Allocate({Hook::kMemAllocFromPool, bytes, FINESERVE_CALLER,
                   Original(call), MemoryKind::kStreamOrdered, stream, pool},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address,
                                                       size_t bytes,
                                                       CUmemoryPool pool,
                                                       CUstream stream) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemAllocFromPoolAsync_ptsz, address, bytes, pool,
                        stream);
  };
  return Allocate(
      {Hook::kMemAllocFromPoolPtsz, bytes, FINESERVE_CALLER, Original(call),
       MemoryKind::kStreamOrdered, PerThread(stream), pool},
      address);
}

FINESERVE_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemFreeAsync, address, stream);
  };
  return FreeAsync(Hook::kMemFreeAsync, address, stream, Original(call));
}

FINESERVE_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address,
                                              CUstream stream) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemFreeAsync_ptsz, address, stream);
  };
  return FreeAsync(Hook::kMemFreeAsyncPtsz, address, PerThread(stream),
                   Original(call));
}

FINESERVE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  if (!g_ranges.MayHold(address)) [[likely]] {
    return g_real_mem_free.load(std::memory_order_relaxed)(address);
  }
  return shim::FreeSlowly(address);
}

FINESERVE_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle,
                                      size_t bytes,
                                      const CUmemAllocationProp* prop,
                                      unsigned long long flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemCreate, handle, bytes, prop, flags);
  };
  AllocationCall create{Hook::kMemCreate, bytes, FINESERVE_CALLER,
                        Original(call)};
  create.kind =
      prop == nullptr || flags != 0 ? MemoryKind::kOther : MemoryKind::kPlain;
  create.prop = prop;
  return Allocate(create, handle);
}

FINESERVE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemRelease, handle);
  };
  return AskIfHandles(
      Hook::kMemRelease, Original(call), [&](const shim::Driver& real) {
        return g_allocator.ReleaseHandle(real, handle, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes,
                                   size_t offset,
                                   CUmemGenericAllocationHandle handle,
                                   unsigned long long flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemMap, address, bytes, offset, handle, flags);
  };
  return AskIfHandles(
      Hook::kMemMap, Original(call), [&](const shim::Driver& real) {
        return g_allocator.MapHandle(real, address, bytes, offset, handle,
                                     flags, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemUnmap, address, bytes);
  };
  return AskIfHandles(
      Hook::kMemUnmap, Original(call), [&](const shim::Driver& real) {
        return g_allocator.UnmapRange(real, address, bytes, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemExportToShareableHandle(
    void* shareable, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemExportToShareableHandle, shareable, handle,
                        type, flags);
  };
  return AskIfHandles(
      Hook::kMemExport, Original(call), [&](const shim::Driver& real) {
        return g_allocator.ExportHandle(real, handle, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemGetAllocationPropertiesFromHandle, prop,
                        handle);
  };
  return AskIfHandles(
      Hook::kMemProperties, Original(call), [&](const shim::Driver& real) {
        return g_allocator.HandleProperties(real, prop, handle, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemRetainAllocationHandle(
    CUmemGenericAllocationHandle* handle, void* address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemRetainAllocationHandle, handle, address);
  };
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  return AskIfHeld(
      at, Hook::kMemRetain, Original(call), [&](const shim::Driver& real) {
        return g_allocator.RetainHandle(real, handle, at, Original(call));
      });
}

FINESERVE_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base,
                                                  size_t* bytes,
                                                  CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemGetAddressRange_v2, base, bytes, address);
  };
  return AskIfHeld(address, Hook::kMemAddressRange, Original(call),
                   [&](const shim::Driver& real) {
                     return g_allocator.queries().AddressRange(
                         real.entry, base, bytes, address, Original(call));
                   });
}

FINESERVE_EXPORT CUresult cuPointerGetAttribute(void* value,
                                                CUpointer_attribute attribute,
                                                CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuPointerGetAttribute, value, attribute, address);
  };
  return AskIfHeld(address, Hook::kPointerAttribute, Original(call),
                   [&](const shim::Driver& real) {
                     return g_allocator.queries().Attribute(
                         real.entry, value, attribute, address, Original(call));
                   });
}

FINESERVE_EXPORT CUresult
cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes,
                       void** values, CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuPointerGetAttributes, count, attributes, values,
                        address);
  };
  return AskIfHeld(address, Hook::kPointerAttributes, Original(call),
                   [&](const shim::Driver& real) {
                     return g_allocator.queries().Attributes(
                         real.entry, count, attributes, values, address,
                         Original(call));
                   });
}

// As the driver answers for memory that was mapped: no legacy IPC.
FINESERVE_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle,
                                            CUdeviceptr address) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuIpcGetMemHandle, handle, address);
  };
  return AskIfHeld(address, Hook::kIpcGetMemHandle, Original(call),
                   [&](const shim::Driver& real) {
                     return g_allocator.ShareAddress(
                         real, Hook::kIpcGetMemHandle, address,
                         CUDA_ERROR_INVALID_VALUE, Original(call));
                   });
}

FINESERVE_EXPORT CUresult cuMemGetHandleForAddressRange(
    void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
    unsigned long long flags) {
  const auto call = [&](const EntryPoints& real) {
    return CallOptional(real.cuMemGetHandleForAddressRange, handle, address,
                        bytes, type, flags);
  };
  return AskIfHeld(address, Hook::kHandleForRange, Original(call),
                   [&](const shim::Driver& real) {
                     return g_allocator.ShareAddress(
                         real, Hook::kHandleForRange, address,
                         CUDA_ERROR_NOT_SUPPORTED, Original(call));
                   });
}

FINESERVE_EXPORT CUresult cuGetProcAddress(const char* symbol, void** pfn,
                                           int cuda_version, uint64_t flags) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr || real->entry.cuGetProcAddress == nullptr) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  const CUresult result =
      real->entry.cuGetProcAddress(symbol, pfn, cuda_version, flags);
  shim::CountCall(Hook::kGetProcAddress);
  if (result == CUDA_SUCCESS) {
    Substitute(symbol, cuda_version, flags, Path::kResolver, pfn);
  }
  return result;
}

FINESERVE_EXPORT CUresult
cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version,
                    uint64_t flags, CUdriverProcAddressQueryResult* status) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr || real->entry.cuGetProcAddress_v2 == nullptr) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  const CUresult result =
      real->entry.cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, status);
  shim::CountCall(Hook::kGetProcAddress2);
  if (result == CUDA_SUCCESS) {
    Substitute(symbol, cuda_version, flags, Path::kResolver2, pfn);
  }
  return result;
}

}  // namespace fineserve::driver

FINESERVE_EXPORT void fs_kv_begin(void) { fineserve::shim::ChangeScope(+1); }

FINESERVE_EXPORT void fs_kv_end(void) { fineserve::shim::ChangeScope(-1); }

namespace fineserve::shim {

void* HookAddress(Hook hook) {
  using namespace driver;  // NOLINT: the hooks
  switch (hook) {
#define FINESERVE_CASE(hook, symbol) \
  case Hook::hook:                   \
    return reinterpret_cast<void*>(&symbol);
    FINESERVE_HOOKS(FINESERVE_CASE)
#undef FINESERVE_CASE
    case Hook::kNone:
      break;
  }
  return nullptr;
}

}  // namespace fineserve::shim
