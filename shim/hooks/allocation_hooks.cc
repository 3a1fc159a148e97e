// Hooks of the driver's allocations and frees. Each hook is a guest in another
// program's process: within a few instructions it decides whether the call
// concerns us, and if not, it tail-calls the driver. Nothing here may throw,
// abort, or touch a signal handler.

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/process_state.h"
#include "shim/host/real_driver.h"
#include "shim/host/thread_state.h"

// The return address of the hooked call. It is a macro because it must be read
// in the hook's own frame.
#define FINESERVE_CALLER __builtin_return_address(0)

namespace fineserve::driver {

using shim::AllocationCall;
using shim::CallOf;
using shim::g_ranges;
using shim::g_real_mem_alloc;
using shim::g_real_mem_free;
using shim::g_redirector;
using shim::Hook;
using shim::MemoryKind;
using shim::Original;

namespace {

// The stream that a per-thread variant means: null is the thread's own default
// stream.
CUstream PerThread(CUstream stream) {
  return stream != nullptr ? stream
                           : reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD);
}

// Handles every allocation except cuMemAlloc_v2, which has its own fast path.
CUresult Allocate(const AllocationCall& call, CUdeviceptr* address) {
  shim::ThreadState& thread = shim::t_state;
  if (call.bytes >= thread.fast_limit) {
    return shim::AllocateSlowly(call, address);
  }
  // RealDriver() is not null, because a registered thread has a driver.
  ++thread.small_allocations;
  thread.small_bytes += call.bytes;
  return call.original(shim::RealDriver()->entry);
}

CUresult FreeSlowly(CUdeviceptr address) {
  const auto call = CallOf<&EntryPoints::cuMemFree_v2>(address);
  return shim::AskRedirector(
      Hook::kMemFree, Original(call), [&](const shim::Driver& real) {
        return g_redirector.releaser().Free(real, address);
      });
}

CUresult FreeAsync(Hook hook, CUdeviceptr address, CUstream stream,
                   const Original& original) {
  if (!g_ranges.MayHold(address)) return shim::Pass(original);
  return shim::AskRedirector(hook, original, [&](const shim::Driver& real) {
    return g_redirector.releaser().FreeInStreamOrder(real, hook, address,
                                                     stream, original);
  });
}

}  // namespace

FINESERVE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  shim::ThreadState& thread = shim::t_state;
  if (bytes < thread.fast_limit) [[likely]] {
    const CUresult result =
        g_real_mem_alloc.load(std::memory_order_relaxed)(address, bytes);
    if (result != driver::CUDA_ERROR_OUT_OF_MEMORY) [[likely]] {
      ++thread.small_allocations;
      thread.small_bytes += bytes;
      return result;
    }
  }
  const auto call = CallOf<&EntryPoints::cuMemAlloc_v2>(address, bytes);
  return shim::AllocateSlowly(
      {Hook::kMemAlloc, bytes, FINESERVE_CALLER, Original(call)}, address);
}

FINESERVE_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address,
                                             size_t* pitch, size_t width_bytes,
                                             size_t rows,
                                             unsigned element_bytes) {
  const auto call = CallOf<&EntryPoints::cuMemAllocPitch_v2>(
      address, pitch, width_bytes, rows, element_bytes);
  return Allocate({Hook::kMemAllocPitch, width_bytes * rows, FINESERVE_CALLER,
                   Original(call), MemoryKind::kOther},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes,
                                            unsigned flags) {
  const auto call =
      CallOf<&EntryPoints::cuMemAllocManaged>(address, bytes, flags);
  return Allocate({Hook::kMemAllocManaged, bytes, FINESERVE_CALLER,
                   Original(call), MemoryKind::kOther},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes,
                                          CUstream stream) {
  const auto call =
      CallOf<&EntryPoints::cuMemAllocAsync>(address, bytes, stream);
  return Allocate({Hook::kMemAllocAsync, bytes, FINESERVE_CALLER,
                   Original(call), MemoryKind::kStreamOrdered, stream},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address,
                                               size_t bytes, CUstream stream) {
  const auto call =
      CallOf<&EntryPoints::cuMemAllocAsync_ptsz>(address, bytes, stream);
  return Allocate(
      {Hook::kMemAllocAsyncPtsz, bytes, FINESERVE_CALLER, Original(call),
       MemoryKind::kStreamOrdered, PerThread(stream)},
      address);
}

FINESERVE_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address,
                                                  size_t bytes,
                                                  CUmemoryPool pool,
                                                  CUstream stream) {
  const auto call = CallOf<&EntryPoints::cuMemAllocFromPoolAsync>(
      address, bytes, pool, stream);
  return Allocate({Hook::kMemAllocFromPool, bytes, FINESERVE_CALLER,
                   Original(call), MemoryKind::kStreamOrdered, stream, pool},
                  address);
}

FINESERVE_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address,
                                                       size_t bytes,
                                                       CUmemoryPool pool,
                                                       CUstream stream) {
  const auto call = CallOf<&EntryPoints::cuMemAllocFromPoolAsync_ptsz>(
      address, bytes, pool, stream);
  return Allocate(
      {Hook::kMemAllocFromPoolPtsz, bytes, FINESERVE_CALLER, Original(call),
       MemoryKind::kStreamOrdered, PerThread(stream), pool},
      address);
}

FINESERVE_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  const auto call = CallOf<&EntryPoints::cuMemFreeAsync>(address, stream);
  return FreeAsync(Hook::kMemFreeAsync, address, stream, Original(call));
}

FINESERVE_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address,
                                              CUstream stream) {
  const auto call = CallOf<&EntryPoints::cuMemFreeAsync_ptsz>(address, stream);
  return FreeAsync(Hook::kMemFreeAsyncPtsz, address, PerThread(stream),
                   Original(call));
}

FINESERVE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  if (!g_ranges.MayHold(address)) [[likely]] {
    return g_real_mem_free.load(std::memory_order_relaxed)(address);
  }
  return FreeSlowly(address);
}

FINESERVE_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle,
                                      size_t bytes,
                                      const CUmemAllocationProp* prop,
                                      unsigned long long flags) {
  const auto call =
      CallOf<&EntryPoints::cuMemCreate>(handle, bytes, prop, flags);
  AllocationCall create{Hook::kMemCreate, bytes, FINESERVE_CALLER,
                        Original(call)};
  create.kind =
      prop == nullptr || flags != 0 ? MemoryKind::kOther : MemoryKind::kPlain;
  create.prop = prop;
  return Allocate(create, handle);
}

}  // namespace fineserve::driver

#undef FINESERVE_CALLER
