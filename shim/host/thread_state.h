#ifndef SHIM_HOST_THREAD_STATE_H_
#define SHIM_HOST_THREAD_STATE_H_

// The state that the shim keeps per thread. It is in initial-exec TLS (a build
// flag), so an access is one instruction and never allocates: a hook may be
// called under the host allocator's lock.

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

struct ThreadState {
  // The only value that the allocation hook tests: a smaller allocation goes
  // straight to the driver. It is 0 until the thread is registered, and while
  // the thread is inside a KV scope, so that all allocations take the slow
  // path. Otherwise it is kLargeBytes, or kGateBytes while the gate is closed.
  size_t fast_limit = 0;
  // Small allocations since they were last added to the scoreboard.
  uint64_t small_allocations = 0;
  uint64_t small_bytes = 0;
  uint32_t scope_depth = 0;
  // The depth of our own calls into the driver. If it is not 0, calls that the
  // driver makes through its exported names are not the program's.
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

#endif  // SHIM_HOST_THREAD_STATE_H_
