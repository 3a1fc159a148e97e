// Hooks of the calls by which a program waits for its work or asks whether it
// is done. They change nothing: they are the moments at which what the program
// freed in stream order may have passed, and a program that has freed its KV
// may make no other call that we look at for hours.

#include "kernels/driver/prototypes.h"
#include "shim/driver.h"
#include "shim/process.h"

#define FINESERVE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fineserve::driver {

using shim::CallOptional;

namespace {

// The driver's answer; then, if anything waits to be given back, a look at it.
template <typename Call>
CUresult ThenCollect(abi::Hook hook, Call call) {
  const shim::Driver* real = shim::RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = call(real->entry);
  if (shim::g_allocator.has_deferred()) [[unlikely]] {
    shim::CountCall(hook);
    shim::CollectDeferredFrees();
  }
  return result;
}

}  // namespace

FINESERVE_EXPORT CUresult cuCtxSynchronize() {
  return ThenCollect(abi::Hook::kCtxSynchronize, [](const EntryPoints& real) {
    return CallOptional(real.cuCtxSynchronize);
  });
}

// A driver older than CUDA 13 answers a request for this one with the first
// version, which ignores the argument.
FINESERVE_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  return ThenCollect(abi::Hook::kCtxSynchronize2, [&](const EntryPoints& real) {
    return real.cuCtxSynchronize_v2 != nullptr
               ? real.cuCtxSynchronize_v2(context)
               : CallOptional(real.cuCtxSynchronize);
  });
}

FINESERVE_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return ThenCollect(abi::Hook::kStreamSynchronize,
                     [&](const EntryPoints& real) {
                       return CallOptional(real.cuStreamSynchronize, stream);
                     });
}

FINESERVE_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return ThenCollect(
      abi::Hook::kStreamSynchronizePtsz, [&](const EntryPoints& real) {
        return CallOptional(real.cuStreamSynchronize_ptsz, stream);
      });
}

FINESERVE_EXPORT CUresult cuStreamQuery(CUstream stream) {
  return ThenCollect(abi::Hook::kStreamQuery, [&](const EntryPoints& real) {
    return CallOptional(real.cuStreamQuery, stream);
  });
}

FINESERVE_EXPORT CUresult cuStreamQuery_ptsz(CUstream stream) {
  return ThenCollect(abi::Hook::kStreamQueryPtsz, [&](const EntryPoints& real) {
    return CallOptional(real.cuStreamQuery_ptsz, stream);
  });
}

FINESERVE_EXPORT CUresult cuEventSynchronize(CUevent event) {
  return ThenCollect(abi::Hook::kEventSynchronize,
                     [&](const EntryPoints& real) {
                       return CallOptional(real.cuEventSynchronize, event);
                     });
}

FINESERVE_EXPORT CUresult cuEventQuery(CUevent event) {
  return ThenCollect(abi::Hook::kEventQuery, [&](const EntryPoints& real) {
    return CallOptional(real.cuEventQuery, event);
  });
}

}  // namespace fineserve::driver
