#include "shim/hooks/resolver_hooks.h"

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/gated_hooks.h"
#include "shim/hooks/late_calls.h"
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

// True if the driver's answer has a later ABI than our list knows. A driver
// gives one function for all versions with the same ABI.
template <auto Entry, typename... Status>
bool IsLaterThanListed(const shim::Driver& real, const char* name,
                       const void* answer, int cuda_version, uint64_t flags) {
  if (cuda_version <= kListedCudaVersion) return false;
  void* listed = nullptr;
  (real.entry.*Entry)(name, &listed, kListedCudaVersion, flags, Status{}...);
  return answer != listed;
}

// Makes the driver's call, and replaces the function that it finds with ours if
// ours has the same ABI.
template <auto Entry, typename... Status>
CUresult Resolve(Hook hook, Path path, const char* name, void** function,
                 int cuda_version, uint64_t flags, Status... status) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr || real->entry.*Entry == nullptr) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  const CUresult result =
      (real->entry.*Entry)(name, function, cuda_version, flags, status...);
  shim::CountCall(hook);
  if (result != CUDA_SUCCESS || *function == nullptr || shim::Disabled()) {
    return result;
  }
  const Hook wanted = shim::HookForRequest(name, cuda_version, flags);
  const bool evictable = shim::IsEvictable();
  const auto gated = wanted == Hook::kNone && evictable
                         ? shim::GatedForRequest(name, cuda_version, flags)
                         : shim::GatedCall::kNone;
  if (wanted == Hook::kNone && gated == shim::GatedCall::kNone &&
      !(evictable && shim::IsNamedAsATouch(name))) {
    return result;
  }
  const bool later = IsLaterThanListed<Entry, Status...>(*real, name, *function,
                                                         cuda_version, flags);
  if (later) {
    if (evictable) *function = shim::LateCall(name, *function);
  } else if (wanted != Hook::kNone) {
    shim::g_redirector.scoreboard().CountUse(wanted, path);
    *function = shim::HookAddress(wanted);
  } else if (gated != shim::GatedCall::kNone) {
    *function = shim::GatedAddress(gated);
  }
  return result;
}

}  // namespace

FINESERVE_EXPORT CUresult cuGetProcAddress(const char* symbol, void** pfn,
                                           int cuda_version, uint64_t flags) {
  return Resolve<&EntryPoints::cuGetProcAddress>(
      Hook::kGetProcAddress, Path::kResolver, symbol, pfn, cuda_version, flags);
}

FINESERVE_EXPORT CUresult
cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version,
                    uint64_t flags, CUdriverProcAddressQueryResult* status) {
  return Resolve<&EntryPoints::cuGetProcAddress_v2>(
      Hook::kGetProcAddress2, Path::kResolver2, symbol, pfn, cuda_version,
      flags, status);
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
