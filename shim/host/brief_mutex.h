#ifndef SHIM_HOST_BRIEF_MUTEX_H_
#define SHIM_HOST_BRIEF_MUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// A mutex for a hot path whose critical sections are short: locking and
// unlocking it costs a pair of CAS, inline, and no call (bench/micro/
// blocks_bench). A thread that finds it locked sleeps. Constant-initialised and
// trivially destroyed.
class FINESERVE_ANNOTATE(capability("mutex")) BriefMutex {
 public:
  constexpr BriefMutex() = default;
  void Lock() FINESERVE_ANNOTATE(acquire_capability()) {
    uint32_t expected = kFree;
    // Acquire: pairs with the release in Unlock.
    if (!word_.compare_exchange_strong(expected, kLocked,
                                       std::memory_order_acquire)) {
      LockSlowly();
    }
  }
  void Unlock() FINESERVE_ANNOTATE(release_capability()) {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) {
      syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }

 private:
  enum : uint32_t { kFree, kLocked, kAwaited };

  void LockSlowly() {
    while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, kAwaited, nullptr, nullptr,
              0);
    }
  }

  std::atomic<uint32_t> word_{kFree};
};

}  // namespace fineserve::shim

#endif  // SHIM_HOST_BRIEF_MUTEX_H_
