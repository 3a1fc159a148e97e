#ifndef SHIM_REDIRECT_DEFERRED_FREES_H_
#define SHIM_REDIRECT_DEFERRED_FREES_H_

#include <atomic>
#include <cstddef>

#include "kernels/driver/entry_points.h"
#include "shim/host/plain_mutex.h"
#include "shim/map/range_table.h"

namespace fineserve::shim {

// Redirected ranges that the program freed in stream order. Work before the
// free may still touch them, so each stays mapped and leased until an event
// that was recorded on that stream has passed. We run no thread in the host, so
// its own calls must look for passed events: every later large allocation does,
// every free of redirected memory, and every call by which the program waits
// for its work or asks whether it is done (hooks/wait_hooks.cc).
//
// Thread-safe; no driver call is made under the lock. Constant-initialised,
// trivially destroyed.
class DeferredFrees {
 public:
  // Heuristic: an engine may free some hundred KV tensors at once.
  static constexpr size_t kCapacity = 512;

  constexpr DeferredFrees() = default;

  // `passed` must be an event of `context`. False if the table is full; the
  // caller must then wait for the work.
  bool Add(const Redirection& range, driver::CUevent passed,
           driver::CUcontext context);

  // Takes out one range whose event has passed, and destroys the event. False
  // if there is none. After a sticky error the driver cannot say that an event
  // has passed, so the range stays leased.
  bool TakePassed(const driver::EntryPoints& entry, Redirection* out);

  // To be called before a context is destroyed, and its events with it: no
  // thread may query the events from now on, unless the context lives on
  // (Unhold).
  void Hold(driver::CUcontext context);
  void Unhold(driver::CUcontext context);
  // Takes out one range that was held and whose context has been destroyed.
  // False if there is none.
  bool TakeHeld(driver::CUcontext context, Redirection* out);

  // Takes no lock: this is the whole cost for a program that frees nothing in
  // stream order.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Entry {
    Redirection range;
    driver::CUevent passed = nullptr;  // null if the place is free
    driver::CUcontext context = nullptr;
    bool claimed = false;  // a thread is querying the event
    bool held = false;
  };

  bool Claim(size_t place, Entry* out);
  void Settle(size_t place, bool taken);
  void SetHeld(driver::CUcontext context, bool held);

  Mutex mutex_;
  Entry entries_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
  // Changed under the lock. Relaxed: it is only a hint; entries are read under
  // the lock.
  std::atomic<size_t> count_{0};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_DEFERRED_FREES_H_
