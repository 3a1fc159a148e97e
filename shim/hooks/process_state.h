#ifndef SHIM_HOOKS_PROCESS_STATE_H_
#define SHIM_HOOKS_PROCESS_STATE_H_

// The state of the shim in this process, and the hooks' slow paths.

#include <atomic>

#include "kernels/driver/cuda_types.h"
#include "shim/eviction/mover.h"
#include "shim/eviction/sharer.h"
#include "shim/eviction/view_keeper.h"
#include "shim/hooks/hook_table.h"
#include "shim/host/real_driver.h"
#include "shim/host/thread_state.h"
#include "shim/redirect/redirector.h"

namespace fineserve::shim {

extern constinit RangeTable g_ranges;
extern constinit RangeTable g_mappings;
extern constinit Redirector g_redirector;
extern constinit ViewKeeper g_view_keeper;
extern constinit ResidentMemory g_resident_memory;
extern constinit Mover g_mover;
extern constinit Sharer g_sharer;

// Handles an allocation to which the fast path does not apply: the thread is
// not registered, the size is large, or a scope is open.
driver::CUresult AllocateSlowly(AllocationCall call, driver::CUdeviceptr* out);

// Starts the thread that moves this process's memory, unless it runs already.
void StartMover();

// Returns the slabs of memory that the program has freed in stream order, as
// far as its streams have passed those frees. Called after the program has
// waited for its work or has queried whether it is done.
void CollectDeferredFrees();

// The only access to this process's state, except for allocations. Null in a
// forked child, which must not take its locks. The first call makes sure that a
// forked child is recognised as one.
extern constinit std::atomic<bool> g_is_started;
void StartOnce();
inline Redirector* Ours() {
  // Acquire: pairs with the release in Start.
  if (!g_is_started.load(std::memory_order_acquire)) [[unlikely]]
    StartOnce();
  return g_redirector.forked() ? nullptr : &g_redirector;
}

// Counts a call of a hook.
void CountCall(abi::Hook hook);

// Makes the original call, because it turned out not to concern us.
inline driver::CUresult Pass(const Original& original) {
  const Driver* real = RealDriver();
  return real == nullptr ? driver::CUDA_ERROR_NOT_INITIALIZED
                         : original(real->entry);
}

// Handles a call that may concern our memory: returns the result of
// `ask(driver)`. Makes `original`'s call instead if the driver called us while
// it served a call of ours, or in a forked child.
template <typename Ask>
driver::CUresult AskRedirector(abi::Hook hook, const Original& original,
                               Ask ask) {
  const Driver* real = RealDriver();
  if (real == nullptr) return driver::CUDA_ERROR_NOT_INITIALIZED;
  if (t_state.nested > 0) return original(real->entry);
  CountCall(hook);
  if (Ours() == nullptr) return original(real->entry);
  ReentryGuard guard;
  return ask(*real);
}

// Opens (+1) or closes (-1) a KV scope of this thread.
void ChangeScope(int by);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_PROCESS_STATE_H_
