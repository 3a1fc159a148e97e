#ifndef SHIM_HOOKS_THREAD_STATE_H_
#define SHIM_HOOKS_THREAD_STATE_H_

// What the shim keeps per thread. Initial-exec TLS (a build flag): an access
// is one instruction and never allocates, which a hook under somebody else's
// allocator lock needs.

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

struct ThreadState {
  // The allocation hook's only test: what is smaller goes straight to the
  // driver. 0 (everything takes the slow path) until the thread is registered
  // and while it is inside a KV scope; otherwise kLargeBytes.
  size_t fast_limit = 0;
  // Since the last fold into the page.
  uint64_t small_allocations = 0;
  uint64_t small_bytes = 0;
  uint32_t scope_depth = 0;
  // Depth of our own calls into the driver: what the driver calls back through
  // its exported names is not the program's doing.
  uint32_t nested = 0;
};

inline constinit thread_local ThreadState t_state;

class ReentryGuard {
 public:
  ReentryGuard() { ++t_state.nested; }
  ~ReentryGuard() { --t_state.nested; }
  ReentryGuard(const ReentryGuard&) = delete;
  ReentryGuard& operator=(const ReentryGuard&) = delete;
};

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_THREAD_STATE_H_
