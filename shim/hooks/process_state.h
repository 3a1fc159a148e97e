#ifndef SHIM_HOOKS_PROCESS_STATE_H_
#define SHIM_HOOKS_PROCESS_STATE_H_

// The shim's state in this process and what the hooks do off their fast path.

#include <cstddef>

#include "kernels/driver/cuda_types.h"
#include "shim/hooks/hook_table.h"
#include "shim/hooks/thread_state.h"
#include "shim/host/real_driver.h"
#include "shim/redirect/redirector.h"

namespace fineserve::shim {

extern constinit RangeTable g_ranges;
extern constinit RangeTable g_mappings;
extern constinit Redirector g_redirector;

// An allocation to which the fast path does not apply: an unregistered thread,
// a large size, an open scope.
driver::CUresult AllocateSlowly(AllocationCall call, driver::CUdeviceptr* out);

// Frees of an address that may be ours.
driver::CUresult FreeSlowly(driver::CUdeviceptr address);
driver::CUresult FreeAsyncSlowly(abi::Hook hook, driver::CUdeviceptr address,
                                 driver::CUstream stream,
                                 const Original& original);

// After the program has waited, or has asked whether something is done: gives
// back what it freed in stream order and has passed.
void CollectDeferredFrees();

// Notes that a hook was called.
void CountCall(abi::Hook hook);

// A call that turned out not to concern us.
inline driver::CUresult Pass(const Original& original) {
  const Driver* real = RealDriver();
  return real == nullptr ? driver::CUDA_ERROR_NOT_INITIALIZED
                         : original(real->entry);
}

// A call that may concern what is ours: answers with `ask(driver)`, or with
// `original` within calls of our own.
template <typename Ask>
driver::CUresult AskRedirector(abi::Hook hook, const Original& original,
                               Ask ask) {
  const Driver* real = RealDriver();
  if (real == nullptr) return driver::CUDA_ERROR_NOT_INITIALIZED;
  if (t_state.nested > 0) return original(real->entry);
  CountCall(hook);
  ReentryGuard guard;
  return ask(*real);
}

// Opens (+1) or closes (-1) a KV scope of this thread.
void ChangeScope(int by);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_PROCESS_STATE_H_
