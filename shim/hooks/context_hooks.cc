// Hooks of cuInit, before which no context exists; of calls that create a
// context, for which the pool makes room; and of calls that destroy a context,
// or open memory of a context or a pool to other devices. The driver opens its
// own memory; we open redirected memory.

#include <atomic>

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/process_state.h"
#include "shim/host/environment.h"
#include "shim/host/real_driver.h"

namespace fineserve::driver {
namespace {

using shim::CallOf;
using shim::g_ranges;
using shim::g_redirector;
using shim::Hook;
using shim::Original;
using shim::PeerAccess;
using shim::Releaser;

// Returns the result of `(releaser.*end)(driver, hook, what, original)`.
template <typename End, typename What>
CUresult EndsWith(Hook hook, const Original& original, End end, What what) {
  Releaser& releaser = g_redirector.releaser();
  if (g_ranges.empty() && !releaser.has_deferred() &&
      !g_redirector.peers().in_use()) {
    return shim::Pass(original);
  }
  return shim::AskRedirector(hook, original, [&](const shim::Driver& real) {
    return (releaser.*end)(real, hook, what, original);
  });
}

// Makes the driver's call and returns its result. If it succeeds,
// `(peers.*follow)(driver, arguments...)` does the same for redirected memory.
template <typename Follow, typename... Arguments>
CUresult ThenFollow(Hook hook, const Original& original, Follow follow,
                    Arguments... arguments) {
  return shim::AskRedirector(hook, original, [&](const shim::Driver& real) {
    const CUresult result = original(real.entry);
    if (result == CUDA_SUCCESS) {
      (g_redirector.peers().*follow)(real, arguments...);
    }
    return result;
  });
}

CUresult Creates(Hook hook, const Original& original, CUdevice device) {
  return shim::AskRedirector(hook, original, [&](const shim::Driver& real) {
    return g_redirector.CreateContext(real, device, original);
  });
}

std::atomic<bool> g_awaited{false};

}  // namespace

FINESERVE_EXPORT CUresult cuInit(unsigned int flags) {
  const auto call = CallOf<&EntryPoints::cuInit>(flags);
  if (!shim::Disabled() && !g_awaited.exchange(true)) {
    shim::CountCall(Hook::kInit);
    shim::DaemonLink::AwaitFormerProgram();
  }
  return shim::Pass(Original(call));
}

FINESERVE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context,
                                                   CUdevice device) {
  const auto call =
      CallOf<&EntryPoints::cuDevicePrimaryCtxRetain>(context, device);
  return Creates(Hook::kPrimaryRetain, Original(call), device);
}

FINESERVE_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags,
                                         CUdevice device) {
  const auto call =
      CallOf<&EntryPoints::cuCtxCreate_v2>(context, flags, device);
  return Creates(Hook::kCtxCreate2, Original(call), device);
}

FINESERVE_EXPORT CUresult cuCtxCreate_v3(CUcontext* context,
                                         CUexecAffinityParam* params, int count,
                                         unsigned int flags, CUdevice device) {
  const auto call = CallOf<&EntryPoints::cuCtxCreate_v3>(context, params, count,
                                                         flags, device);
  return Creates(Hook::kCtxCreate3, Original(call), device);
}

FINESERVE_EXPORT CUresult cuCtxCreate_v4(CUcontext* context,
                                         CUctxCreateParams* params,
                                         unsigned int flags, CUdevice device) {
  const auto call =
      CallOf<&EntryPoints::cuCtxCreate_v4>(context, params, flags, device);
  return Creates(Hook::kCtxCreate4, Original(call), device);
}

FINESERVE_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  const auto call = CallOf<&EntryPoints::cuCtxDestroy_v2>(context);
  return EndsWith(Hook::kCtxDestroy, Original(call), &Releaser::DestroyContext,
                  context);
}

FINESERVE_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  const auto call = CallOf<&EntryPoints::cuDevicePrimaryCtxRelease>(device);
  return EndsWith(Hook::kPrimaryRelease, Original(call), &Releaser::EndPrimary,
                  device);
}

FINESERVE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const auto call = CallOf<&EntryPoints::cuDevicePrimaryCtxRelease_v2>(device);
  return EndsWith(Hook::kPrimaryRelease2, Original(call), &Releaser::EndPrimary,
                  device);
}

FINESERVE_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  const auto call = CallOf<&EntryPoints::cuDevicePrimaryCtxReset>(device);
  return EndsWith(Hook::kPrimaryReset, Original(call), &Releaser::EndPrimary,
                  device);
}

FINESERVE_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  const auto call = CallOf<&EntryPoints::cuDevicePrimaryCtxReset_v2>(device);
  return EndsWith(Hook::kPrimaryReset2, Original(call), &Releaser::EndPrimary,
                  device);
}

FINESERVE_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer,
                                                unsigned int flags) {
  const auto call = CallOf<&EntryPoints::cuCtxEnablePeerAccess>(peer, flags);
  return ThenFollow(Hook::kPeerEnable, Original(call), &PeerAccess::Enable,
                    peer);
}

FINESERVE_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  const auto call = CallOf<&EntryPoints::cuCtxDisablePeerAccess>(peer);
  return ThenFollow(Hook::kPeerDisable, Original(call), &PeerAccess::Disable,
                    peer);
}

FINESERVE_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool,
                                             const CUmemAccessDesc* access,
                                             size_t count) {
  const auto call =
      CallOf<&EntryPoints::cuMemPoolSetAccess>(pool, access, count);
  return ThenFollow(Hook::kPoolSetAccess, Original(call), &PeerAccess::SetPool,
                    pool, access, count);
}

}  // namespace fineserve::driver
