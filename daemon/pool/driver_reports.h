#ifndef DAEMON_POOL_DRIVER_REPORTS_H_
#define DAEMON_POOL_DRIVER_REPORTS_H_

// The questions of the pool's state machine (pool_state.h) to the driver, and
// the driver's answers. Times are CLOCK_MONOTONIC, ns.

#include <cstdint>
#include <utility>

#include "absl/types/optional.h"

namespace fineserve::slab {

// When to ask the driver which processes it lists on the GPU, and whether its
// answer counts.
//
// Invariant: one question is under way at most, and its answer counts only if
// no process has exited since: such a process may have begun its work after the
// list was made. Plain value.
class ProcessLists {
 public:
  // Pause between two questions; one takes about 1 ms.
  static constexpr uint64_t kPauseNs = 50'000'000;

  // Returns true if the driver should be asked now, and then assumes that it is
  // asked.
  bool Ask(uint64_t now_ns) {
    if (asked_ || now_ns < next_ns_) return false;
    next_ns_ = now_ns + kPauseNs;
    return asked_ = true;
  }
  void SawExit() { is_old_ = asked_; }
  // Makes the next question due at once.
  void Hurry() { next_ns_ = 0; }
  void Answered() { asked_ = false; }
  // True if the answer counts, because no process has exited since the
  // question. To be called once for each usable answer.
  bool TakeCounts() { return !std::exchange(is_old_, false); }

 private:
  uint64_t next_ns_ = 0;
  bool asked_ = false;
  bool is_old_ = false;
};

// The GPU's count of uncorrectable memory errors.
//
// Invariant: deaths are suspect only for a while after the count has risen.
// Plain value.
class MemoryErrors {
 public:
  // How long after a rise a death may still be due to the error. Heuristic: a
  // process that has lost its context ends at once, or later if it dumps core.
  static constexpr uint64_t kSuspectNs = 30'000'000'000;

  // True if the count has risen since it was last read. The first count is not
  // a rise, unless Set gave an earlier count.
  bool HasRisen(uint64_t errors, uint64_t now_ns) {
    const bool more = count_ && errors > *count_;
    count_ = errors;
    if (more) suspect_until_ns_ = now_ns + kSuspectNs;
    return more;
  }
  void Set(uint64_t errors) { count_ = errors; }
  uint64_t count() const { return count_.value_or(0); }
  bool MayKill(uint64_t now_ns) const { return now_ns < suspect_until_ns_; }

 private:
  absl::optional<uint64_t> count_;
  uint64_t suspect_until_ns_ = 0;
};

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_DRIVER_REPORTS_H_
