#include "shim/hooks/process_state.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/classify/stack.h"
#include "shim/gate/gate.h"
#include "shim/gate/presence.h"
#include "shim/hooks/gated_hooks.h"
#include "shim/host/environment.h"
#include "shim/host/real_driver.h"
#include "shim/host/thread_state.h"

namespace fineserve::shim {

constinit RangeTable g_ranges;
constinit RangeTable g_mappings;
constinit Redirector g_redirector{&g_ranges, &g_mappings};
constinit std::atomic<bool> g_is_started{false};
constinit ResidentMemory g_resident_memory;
constinit Sharer g_sharer{&g_redirector};
constinit ViewKeeper g_view_keeper{&g_redirector.view()};
constinit Mover g_mover{&g_redirector, &g_sharer, &g_view_keeper};

namespace {

using driver::CUDA_ERROR_NOT_INITIALIZED;
using driver::CUdeviceptr;
using driver::CUresult;

pthread_key_t g_thread_key;
pthread_once_t g_started = PTHREAD_ONCE_INIT;

void FoldCounters(ThreadState* thread) {
  g_redirector.scoreboard().AddSmall(thread->small_allocations,
                                     thread->small_bytes);
  thread->small_allocations = 0;
  thread->small_bytes = 0;
}

void OnThreadEnd(void* thread) {
  auto* state = static_cast<ThreadState*>(thread);
  FoldCounters(state);
  // If another destructor of this thread allocates later, that registers the
  // thread again.
  state->fast_limit = 0;
}

void OnForkInChild() {
  g_redirector.AfterForkInChild();
  g_gate.RestartInChild();
  g_presence.RestartInChild();
  g_mover.AbandonInChild();
  g_sharer.AbandonInChild();
  UnwindOnlyAfterFork();
  t_state.small_allocations = 0;  // the parent counts its own
  t_state.small_bytes = 0;
}

void KeepDeclaredSizes() {
  const char* sizes = getenv("FINESERVE_KV_SIZES");
  if (sizes == nullptr || sizes[0] == '\0') return;
  uint64_t declared[abi::kDeclaredSizeCapacity];
  g_redirector.declared().Set(declared, ParseSizes(sizes, declared));
  g_redirector.link().set_keep_declared(true);
}

void Start() {
  pthread_key_create(&g_thread_key, &OnThreadEnd);
  pthread_atfork(nullptr, nullptr, &OnForkInChild);
  if (ViewRequired()) g_redirector.RequireView();
  if (IsEvictable()) g_redirector.KeepResident(&g_resident_memory);
  KeepDeclaredSizes();
  // Release: pairs with the acquire in Ours.
  g_is_started.store(true, std::memory_order_release);
}

void UpdateFastLimit(ThreadState* thread) {
  const size_t limit =
      g_redirector.gate_closed() ? Redirector::kGateBytes : kLargeBytes;
  thread->fast_limit = thread->scope_depth == 0 ? limit : 0;
}

// Registers a thread. Called at its first allocation, not before: a thread that
// never allocates costs nothing, and a hook may run before our constructors.
void Register(ThreadState* thread) {
  StartOnce();
  pthread_setspecific(g_thread_key, thread);
  UpdateFastLimit(thread);
}

// Starts the mover, and stops it at exit: the driver ends when the program
// exits, after the handlers that were registered later than its own.
void KeepMover(const Driver& real) {
  static constinit std::atomic<bool> started{false};
  if (started.exchange(true, std::memory_order_relaxed)) return;
  atexit([] {
    g_mover.Stop();
    g_sharer.Stop();
  });
  g_mover.Start(real);
}

}  // namespace

void StartMover() {
  // A process that runs the block pool of others needs no driver.
  static constexpr Driver kNoDriver = {};
  const Driver* real = RealDriver();
  KeepMover(real != nullptr ? *real : kNoDriver);
}

void StartOnce() { pthread_once(&g_started, &Start); }

CUresult AllocateSlowly(AllocationCall call, CUdeviceptr* out) {
  ThreadState& thread = t_state;
  const Driver* real = RealDriver();
  if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (thread.nested > 0 || Disabled()) return call.original(real->entry);
  Register(&thread);
  CountCall(call.hook);
  call.in_scope = thread.scope_depth > 0;
  ReentryGuard guard;
  const bool gated =
      g_redirector.gate_closed() && call.bytes >= Redirector::kGateBytes;
  if (call.bytes < kLargeBytes && !call.in_scope && !gated) {
    ++thread.small_allocations;
    thread.small_bytes += call.bytes;
    return g_redirector.AllocateSmall(*real, call);
  }
  const CUresult result = g_redirector.Allocate(*real, call, out);
  FoldCounters(&thread);
  if (g_resident_memory.in_use()) KeepMover(*real);
  return result;
}

void CollectDeferredFrees() {
  const Driver* real = RealDriver();
  Redirector* const ours = Ours();
  if (real == nullptr || t_state.nested > 0 || ours == nullptr) return;
  ReentryGuard guard;
  ours->releaser().CollectPassed(*real);
}

void CountCall(abi::Hook hook) {
  g_redirector.scoreboard().CountUse(hook, abi::Path::kCalled);
}

void ChangeScope(int by) {
  ThreadState& thread = t_state;
  if (by > 0) {
    ++thread.scope_depth;
  } else if (thread.scope_depth > 0) {
    --thread.scope_depth;
  }
  // The next allocation registers the thread, which sets the limit again.
  thread.fast_limit = 0;
}

}  // namespace fineserve::shim
