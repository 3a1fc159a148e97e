// Hooks of the calls by which a program waits for its work or asks whether it
// is done. They change nothing about the answer: we use them to notice that
// what the program freed in stream order has passed. A program that has freed
// its KV may make no other call that we see for hours.

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/process_state.h"
#include "shim/host/real_driver.h"

namespace fineserve::driver {
namespace {

// Makes the driver's call, and then looks at the deferred frees if there were
// any before the call. Otherwise it is a tail call to the driver: engines query
// events many times a step.
template <typename Function, typename... Arguments>
CUresult ThenCollect(abi::Hook hook, Function function,
                     Arguments... arguments) {
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
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return ThenCollect(abi::Hook::kCtxSynchronize, real->entry.cuCtxSynchronize);
}

// A driver older than CUDA 13 answers a request for this function with its
// first version, which ignores the argument.
FINESERVE_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  constexpr auto kHook = abi::Hook::kCtxSynchronize2;
  return real->entry.cuCtxSynchronize_v2 != nullptr
             ? ThenCollect(kHook, real->entry.cuCtxSynchronize_v2, context)
             : ThenCollect(kHook, real->entry.cuCtxSynchronize);
}

FINESERVE_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return ThenCollect(abi::Hook::kStreamSynchronize,
                     real->entry.cuStreamSynchronize, stream);
}

FINESERVE_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return ThenCollect(abi::Hook::kStreamSynchronizePtsz,
                     real->entry.cuStreamSynchronize_ptsz, stream);
}

FINESERVE_EXPORT CUresult cuStreamQuery(CUstream stream) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return ThenCollect(abi::Hook::kStreamQuery, real->entry.cuStreamQuery,
                     stream);
}

FINESERVE_EXPORT CUresult cuStreamQuery_ptsz(CUstream stream) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return ThenCollect(abi::Hook::kStreamQueryPtsz,
                     real->entry.cuStreamQuery_ptsz, stream);
}

FINESERVE_EXPORT CUresult cuEventSynchronize(CUevent event) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return ThenCollect(abi::Hook::kEventSynchronize,
                     real->entry.cuEventSynchronize, event);
}

FINESERVE_EXPORT CUresult cuEventQuery(CUevent event) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return ThenCollect(abi::Hook::kEventQuery, real->entry.cuEventQuery, event);
}

}  // namespace fineserve::driver
