#ifndef SHIM_HOST_PRIVATE_FUTEX_H_
#define SHIM_HOST_PRIVATE_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace fineserve::shim {

// Sleeps until `word` differs from `seen`, a thread of this process wakes it,
// or CLOCK_MONOTONIC reaches `until_ms`. May return early: call it in a loop.
inline void SleepWhileEqual(const std::atomic<uint32_t>& word, uint32_t seen,
                            uint64_t until_ms) {
  const timespec until = {static_cast<time_t>(until_ms / 1000),
                          static_cast<long>(until_ms % 1000 * 1'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, seen, &until, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

// Wakes all threads of this process that sleep on `word`.
inline void WakeSleepers(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace fineserve::shim

#endif  // SHIM_HOST_PRIVATE_FUTEX_H_
