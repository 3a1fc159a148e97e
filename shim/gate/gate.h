#ifndef SHIM_GATE_GATE_H_
#define SHIM_GATE_GATE_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/driver/cuda_types.h"
#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// One thread's place at the gate. Only the thread itself writes it.
struct GateVisitor {
  enum : uint32_t {
    kOutside,
    kInside,  // a gated call
    // The gate does not know threads in the following states.
    kUnlisted,
    kExempt,  // a thread of ours, which never waits
  };
  std::atomic<uint32_t> place{kUnlisted};
  GateVisitor* next = nullptr;  // under the gate's mutex
};

// The calling thread's visitor, in initial-exec TLS (a build flag).
inline constinit thread_local GateVisitor t_gate_visitor;

// In an engine that may be evicted, every call that makes the device touch
// memory passes this gate (gated_calls.h). It closes only for an eviction and
// opens only after an activation.
//
//   a call:  place = inside; is it closed? no: the driver's call;
//            place = outside
//   Close:   closed = 1; membarrier; wait until no thread's place is inside
//
// The call has no fence, so the processor may swap its store and its load. The
// kernel's membarrier, in the rare Close, makes up for that: after it each
// running thread has either seen `closed`, or its place is seen here. A call
// that finds the gate closed takes its place back and waits. A call within a
// call passes, since Close waits for the outer one. The place is stored and
// never counted, so that a call does not wait for the store of the call before
// it.
//
// Thread-safe; one thread closes and opens, until the gate is closed for good.
// Constant-initialised, trivially
// destroyed: hooks are called before the first constructor and after the last
// destructor.
class Gate {
 public:
  constexpr Gate() = default;

  // Prepares this process; to be called once, before the first TryEnter. False
  // if the kernel lacks membarrier; then there must be no gate.
  bool Prepare();

  // Returns false if the gate is closed or this thread is not known to be
  // outside. Pass then finds out what to do.
  bool TryEnter() {
    std::atomic<uint32_t>& place = t_gate_visitor.place;
    if (place.load(std::memory_order_relaxed) != GateVisitor::kOutside) {
      return false;
    }
    // Relaxed for the processor. The signal fence makes the compiler keep this
    // store before the load of `closed`. Both accesses pair with the barrier in
    // Close.
    place.store(GateVisitor::kInside, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!is_closed()) return true;
    Leave();
    return false;
  }
  void Leave() {
    // Release: a thread that sees this store also sees the effects of the call.
    // Pairs with the acquire in Close.
    t_gate_visitor.place.store(GateVisitor::kOutside,
                               std::memory_order_release);
  }
  // Waits until the gate is open, then makes the call and returns its result.
  // Within a gated call, and in a thread of ours, it does not wait. Once the
  // gate is closed for good, it makes no call and returns `never`.
  template <typename Call, typename Result = std::invoke_result_t<Call&>>
  Result Pass(Call call, Result never = {}) {
    if (!TryEnter()) {
      const Entry entry = EnterSlowly();
      if (entry != Entry::kInside)
        return entry == Entry::kBeside ? call() : never;
    }
    const Result result = call();
    Leave();
    return result;
  }

  // Returns true once no thread is inside; false, with the gate open again, if
  // that takes longer than `timeout_ms`, while a graph is captured, or if
  // KeepOpen was called.
  bool Close(uint64_t timeout_ms);
  // Notes that the program calls `function`, which does not pass the gate: from
  // now on the gate never closes. Waits while it is closed. The first name is
  // kept, cut to kNameBytes - 1.
  void KeepOpen(const char* function);
  // Notes that a capture of a graph began in this stream, or has ended there,
  // within a gated call. An eviction waits for the context's work, and that
  // wait would break the capture.
  void CaptureBegins(driver::CUstream stream);
  void CaptureEnds(driver::CUstream stream);
  bool captures() {
    const MutexLock lock(&mutex_);
    return capture_count_ > 0;
  }
  // Null if the gate can close.
  const char* kept_open_by() const {
    return kept_open_by_.load(std::memory_order_acquire);
  }
  void Open();
  // Makes calls that wait, and all later ones, fail, because the program ends
  // while its memory is away. Must not be followed by Open.
  void CloseForGood();
  // Acquire: a thread that finds the gate open also sees what was mapped before
  // it opened. Pairs with the release in Open.
  bool is_closed() const {
    return closed_.load(std::memory_order_acquire) != 0;
  }
  // Threads that wait now, and calls that have waited so far.
  uint32_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }

  // For a forked child, which begins with an open gate and one thread.
  void RestartInChild();

 private:
  enum class Entry {
    kInside,  // the thread has to leave
    kBeside,  // it need not wait, and does not leave
    kNever,
  };
  static constexpr uint32_t kClosed = 1, kClosedForGood = 2;
  Entry EnterSlowly();
  void List(GateVisitor* visitor);
  static void Unlist(void* visitor);
  bool IsEmpty();

  std::atomic<uint32_t> closed_{0};  // or one of the above; a futex
  std::atomic<uint32_t> waiting_{0};
  std::atomic<uint64_t> waits_{0};
  // A capture that is under way. If it is on a default stream (null, legacy or
  // per-thread), `stream` is null and `thread` is the capturing thread.
  struct Capture {
    driver::CUstream stream;
    pthread_t thread;
  };
  static constexpr size_t kMostCaptures = 64;  // more are not protected
  static Capture CaptureIn(driver::CUstream stream);
  static constexpr size_t kNameBytes = 64;
  char name_[kNameBytes] = "";
  std::atomic<const char*> kept_open_by_{nullptr};  // name_
  Mutex mutex_;
  GateVisitor* visitors_ FINESERVE_GUARDED_BY(mutex_) = nullptr;
  Capture captures_[kMostCaptures] FINESERVE_GUARDED_BY(mutex_) = {};
  size_t capture_count_ FINESERVE_GUARDED_BY(mutex_) = 0;
};

// This process's gate.
extern constinit Gate g_gate;

}  // namespace fineserve::shim

#endif  // SHIM_GATE_GATE_H_
