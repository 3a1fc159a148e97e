#ifndef SHIM_REDIRECT_DEFERRED_FREES_H_
#define SHIM_REDIRECT_DEFERRED_FREES_H_

#include <atomic>
#include <cstddef>

#include "kernels/driver/entry_points.h"
#include "shim/host/plain_mutex.h"
#include "shim/map/range_table.h"

namespace fineserve::shim {

// Redirected ranges that the program freed in stream order: work before the
// free may still touch them. Each waits, mapped and leased, for an event that
// was recorded on that stream, and is taken out once the event has passed.
// There is no thread of ours in the host, so somebody must ask: every later
// allocation or free that the shim looks at does, and every call by which the
// program waits for its work or asks whether it is done (wait_hooks.cc).
//
// Thread-safe; no driver call is made under the lock. Constant-initialised,
// trivially destroyed.
class DeferredFrees {
 public:
  // Heuristic: an engine frees some hundred KV tensors at once.
  static constexpr size_t kCapacity = 512;

  constexpr DeferredFrees() = default;

  // False if the table is full: then the caller waits for the event itself.
  bool Add(const Redirection& range, driver::CUevent passed);

  // Takes out one range whose event has passed and destroys the event. False
  // if there is none. An event that the driver cannot tell about any more (a
  // sticky error) never passes: the range stays leased.
  bool TakePassed(const driver::EntryPoints& entry, Redirection* out);

  // Without a lock: what a program pays that freed nothing in stream order.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Entry {
    Redirection range;
    driver::CUevent passed = nullptr;  // null: a free place
    bool claimed = false;              // a thread is asking about it
  };

  bool Claim(size_t place, Entry* out);
  void Settle(size_t place, bool taken);

  Mutex mutex_;
  Entry entries_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
  // Changed under the lock. Relaxed: a hint when to look; what is found is read
  // under the lock.
  std::atomic<size_t> count_{0};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_DEFERRED_FREES_H_
