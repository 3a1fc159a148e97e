// Hooks of the calls that destroy a context. A driver frees with a context what
// was allocated in it; what was redirected in it is ours to end.

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/hooks/process_state.h"
#include "shim/host/real_driver.h"

namespace fineserve::driver {
namespace {

using shim::CallOf;
using shim::g_ranges;
using shim::g_redirector;
using shim::Hook;
using shim::Original;
using shim::Releaser;

// Answers with `(releaser.*end)(driver, hook, what, original)`.
template <typename End, typename What>
CUresult EndsWith(Hook hook, const Original& original, End end, What what) {
  Releaser& releaser = g_redirector.releaser();
  if (g_ranges.empty() && !releaser.has_deferred()) return shim::Pass(original);
  return shim::AskRedirector(hook, original, [&](const shim::Driver& real) {
    return (releaser.*end)(real, hook, what, original);
  });
}

}  // namespace

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

}  // namespace fineserve::driver
