#include "shim/hooks/resolver_hooks.h"

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/process_state.h"
#include "shim/host/environment.h"
#include "shim/host/real_driver.h"

// loader_stubs.S
extern "C" void* dlsym(void* handle, const char* name) noexcept;
extern "C" void* dlvsym(void* handle, const char* name,
                        const char* version) noexcept;
extern "C" void* dlopen(const char* file, int flags) noexcept;
extern "C" void* dlmopen(long space, const char* file, int flags) noexcept;

namespace fineserve::driver {

using abi::Path;
using shim::Hook;

namespace {

// Replaces the driver's answer by our function, if the answer has the ABI that
// our function has.
void Substitute(const char* name, int cuda_version, uint64_t flags, Path path,
                void** function) {
  const Hook hook = shim::HookForRequest(name, cuda_version, flags);
  if (hook == Hook::kNone || *function == nullptr || shim::Disabled()) return;
  shim::g_redirector.scoreboard().CountUse(hook, path);
  *function = shim::HookAddress(hook);
}

}  // namespace

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
