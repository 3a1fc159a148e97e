#ifndef SHIM_WEIGHTS_GATE_H_
#define SHIM_WEIGHTS_GATE_H_

#include <atomic>
#include <cstdint>

#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// One thread's place at the gate. A thread writes its own alone.
struct GateVisitor {
  std::atomic<uint32_t> inside{0};  // gated calls that it is in
  bool listed = false;              // the gate knows of it
  bool exempt = false;              // a thread of ours, which never waits
  GateVisitor* next = nullptr;      // under the gate's mutex
};

// The calling thread's. In initial-exec TLS (a build flag).
inline constinit thread_local GateVisitor t_gate_visitor;

// The door that everything passes which makes the device touch memory, in an
// engine that may be evicted (gated_calls.h). It closes for an eviction and
// opens after an activation, and for nothing else.
//
//   a call:  inside = 1; is it closed? no: the driver's call; inside = 0
//   Close:   closed = 1; membarrier; wait until every thread's inside is 0
//
// The call has no fence: of its store and its load the processor may swap the
// order. The kernel's membarrier makes up for it, on the side that is rare:
// after it each running thread has either seen `closed`, or its `inside` is
// seen here. A call that finds the gate closed takes its `inside` back and
// waits. A call within a call passes, since Close waits for the outer one.
//
// Thread-safe; one thread closes and opens. Constant-initialised, trivially
// destroyed: hooks are called before the first constructor and after the last
// destructor.
class Gate {
 public:
  constexpr Gate() = default;

  // Prepares this process; to be called once, before the first Enter. False if
  // the kernel lacks membarrier: there must be no gate then.
  bool Prepare();

  void Enter() {
    GateVisitor& visitor = t_gate_visitor;
    if (!visitor.listed) [[unlikely]]
      List(&visitor);
    const uint32_t depth = visitor.inside.load(std::memory_order_relaxed) + 1;
    // Relaxed, for the processor; for the compiler they stay in order. Both
    // pair with the barrier in Close.
    visitor.inside.store(depth, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (closed_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      WaitUntilOpen(&visitor, depth);
    }
  }
  void Leave() {
    GateVisitor& visitor = t_gate_visitor;
    // Release: what the call has done is done. Pairs with the acquire in Close.
    visitor.inside.store(visitor.inside.load(std::memory_order_relaxed) - 1,
                         std::memory_order_release);
  }

  // Returns true once no thread is inside; false, with the gate open again, if
  // that takes longer than `timeout_ms`.
  bool Close(uint64_t timeout_ms);
  void Open();
  bool is_closed() const {
    return closed_.load(std::memory_order_relaxed) != 0;
  }
  // Threads that wait now, and calls that have waited so far.
  uint32_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }

  // For a forked child, which begins with an open gate and one thread.
  void RestartInChild();

 private:
  void List(GateVisitor* visitor);
  static void Unlist(void* visitor);
  void WaitUntilOpen(GateVisitor* visitor, uint32_t depth);
  bool IsEmpty();

  std::atomic<uint32_t> closed_{0};  // a futex
  std::atomic<uint32_t> waiting_{0};
  std::atomic<uint64_t> waits_{0};
  Mutex mutex_;
  GateVisitor* visitors_ FINESERVE_GUARDED_BY(mutex_) = nullptr;
};

// This process's.
extern constinit Gate g_gate;

}  // namespace fineserve::shim

#endif  // SHIM_WEIGHTS_GATE_H_
