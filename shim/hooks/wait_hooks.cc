// Hooks of the calls by which a program waits for its work or queries whether
// it is done. They do not change the result: we use them to notice that streams
// have passed the frees in stream order. A program that has freed its KV may
// make no other call that we see for hours.

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/process_state.h"
#include "shim/host/real_driver.h"

namespace fineserve::driver {
namespace {

// Makes the driver's call, and then looks at the deferred frees if there were
// any before the call. Otherwise tail-calls the driver, because engines query
// events many times in each step.
template <auto Entry, typename... Arguments>
CUresult ThenCollect(abi::Hook hook, Arguments... arguments) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto function = real->entry.*Entry;
  if (function == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!shim::g_redirector.releaser().has_deferred()) [[likely]] {
    return function(arguments...);
  }
  const CUresult result = function(arguments...);
  shim::CountCall(hook);
  shim::CollectDeferredFrees();
  return result;
}

}  // namespace

FINESERVE_EXPORT CUresult cuCtxSynchronize() {
  return ThenCollect<&EntryPoints::cuCtxSynchronize>(
      abi::Hook::kCtxSynchronize);
}

// A driver older than CUDA 13 resolves this function to its first version,
// which ignores the argument.
FINESERVE_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  constexpr auto kHook = abi::Hook::kCtxSynchronize2;
  const shim::Driver* real = shim::RealDriver();
  return real != nullptr && real->entry.cuCtxSynchronize_v2 != nullptr
             ? ThenCollect<&EntryPoints::cuCtxSynchronize_v2>(kHook, context)
             : ThenCollect<&EntryPoints::cuCtxSynchronize>(kHook);
}

FINESERVE_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return ThenCollect<&EntryPoints::cuStreamSynchronize>(
      abi::Hook::kStreamSynchronize, stream);
}

FINESERVE_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return ThenCollect<&EntryPoints::cuStreamSynchronize_ptsz>(
      abi::Hook::kStreamSynchronizePtsz, stream);
}

FINESERVE_EXPORT CUresult cuStreamQuery(CUstream stream) {
  return ThenCollect<&EntryPoints::cuStreamQuery>(abi::Hook::kStreamQuery,
                                                  stream);
}

FINESERVE_EXPORT CUresult cuStreamQuery_ptsz(CUstream stream) {
  return ThenCollect<&EntryPoints::cuStreamQuery_ptsz>(
      abi::Hook::kStreamQueryPtsz, stream);
}

FINESERVE_EXPORT CUresult cuEventSynchronize(CUevent event) {
  return ThenCollect<&EntryPoints::cuEventSynchronize>(
      abi::Hook::kEventSynchronize, event);
}

FINESERVE_EXPORT CUresult cuEventQuery(CUevent event) {
  return ThenCollect<&EntryPoints::cuEventQuery>(abi::Hook::kEventQuery, event);
}

}  // namespace fineserve::driver
