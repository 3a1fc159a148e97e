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

// loader_stubs.S
extern "C" void* dlsym(void* handle, const char* name) noexcept;
extern "C" void* dlvsym(void* handle, const char* name,
                        const char* version) noexcept;
extern "C" void* dlopen(const char* file, int flags) noexcept;
extern "C" void* dlmopen(long space, const char* file, int flags) noexcept;

namespace fineserve::driver {

using abi::Path;
using shim::g_ranges;
using shim::g_real_mem_alloc;
using shim::g_real_mem_free;
using shim::Hook;

namespace {

// After the driver has answered: its answer counts only where it is the ABI
// that our function has.
void Substitute(const char* name, int cuda_version, Path path,
                void** function) {
  const Hook hook = shim::HookForRequest(name, cuda_version);
  if (hook == Hook::kNone || *function == nullptr || shim::Disabled()) return;
  shim::g_allocator.page().CountUse(hook, path);
  *function = shim::HookAddress(hook);
}

}  // namespace

FINESERVE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  shim::ThreadState& thread = shim::t_state;
  if (bytes < thread.fast_limit) [[likely]] {
    ++thread.small_allocations;
    return g_real_mem_alloc.load(std::memory_order_relaxed)(address, bytes);
  }
  return shim::AllocateSlowly(bytes, address, __builtin_return_address(0));
}

FINESERVE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  if (!g_ranges.MayHold(address)) [[likely]] {
    return g_real_mem_free.load(std::memory_order_relaxed)(address);
  }
  return shim::FreeSlowly(address);
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
    Substitute(symbol, cuda_version, Path::kResolver, pfn);
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
    Substitute(symbol, cuda_version, Path::kResolver2, pfn);
  }
  return result;
}

}  // namespace fineserve::driver

FINESERVE_EXPORT void fs_kv_begin(void) { fineserve::shim::ChangeScope(+1); }

FINESERVE_EXPORT void fs_kv_end(void) { fineserve::shim::ChangeScope(-1); }

namespace fineserve::shim {

void* HookAddress(Hook hook) {
  switch (hook) {
    case Hook::kMemAlloc:
      return reinterpret_cast<void*>(&driver::cuMemAlloc_v2);
    case Hook::kMemFree:
      return reinterpret_cast<void*>(&driver::cuMemFree_v2);
    case Hook::kGetProcAddress:
      return reinterpret_cast<void*>(&driver::cuGetProcAddress);
    case Hook::kGetProcAddress2:
      return reinterpret_cast<void*>(&driver::cuGetProcAddress_v2);
    case Hook::kDlsym:
      return reinterpret_cast<void*>(&dlsym);
    case Hook::kDlvsym:
      return reinterpret_cast<void*>(&dlvsym);
    case Hook::kDlopen:
      return reinterpret_cast<void*>(&dlopen);
    case Hook::kDlmopen:
      return reinterpret_cast<void*>(&dlmopen);
    case Hook::kNone:
      break;
  }
  return nullptr;
}

}  // namespace fineserve::shim
