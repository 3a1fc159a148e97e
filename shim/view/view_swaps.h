#ifndef SHIM_VIEW_VIEW_SWAPS_H_
#define SHIM_VIEW_VIEW_SWAPS_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "shim/link/scoreboard_writer.h"

namespace fineserve::shim {

// Decides when to try again to map or unmap slabs of a view while the engine
// serves, and measures the cost. Times are milliseconds of CLOCK_MONOTONIC.
// Confined to one thread at a time. Constant-initialised.
class ViewSwaps {
 public:
  // To be called before a view is activated or resumed.
  void Forget() {
    has_failed_ = false;
    wait_since_ms_ = retry_ms_ = 0;
  }
  // To be called when a view is registered: its figures begin at zero.
  void Reset() { *this = {}; }

  // `out` says that slabs wait to be unmapped. True if they have waited so long
  // that the caller must wait for the device.
  bool IsOverdue(bool out, uint64_t now_ms) {
    if (!out) {
      wait_since_ms_ = 0;
    } else if (wait_since_ms_ == 0) {
      wait_since_ms_ = now_ms;
    }
    return out && now_ms - wait_since_ms_ >= kPatienceMs;
  }
  // Called when the unmapping of the slabs that waited was tried.
  void EndWait() { wait_since_ms_ = 0; }

  bool MayMap(uint64_t now_ms) const { return now_ms >= retry_ms_; }
  void MapLater(uint64_t now_ms) { retry_ms_ = now_ms + kRetryMs; }
  // True for the view's first failure.
  bool IsFirstFailure() { return !std::exchange(has_failed_, true); }

  // Counts time that a thread of the engine spends in mapping or unmapping,
  // which includes waiting while another process holds the driver's lock.
  void Count(uint64_t ns) {
    ++count_;
    ns_ += ns;
    longest_ns_ = std::max(longest_ns_, ns);
  }
  void Show(ViewGauges* gauges) const {
    gauges->swaps = count_;
    gauges->swaps_ns = ns_;
    gauges->longest_swap_ns = longest_ns_;
  }

 private:
  // Heuristic: how long a slab that another engine waits for is kept because a
  // step is in flight; after that we wait for the device.
  static constexpr uint64_t kPatienceMs = 1'000;
  // Heuristic: the pause after a failed mapping of a slab before the next try.
  static constexpr uint64_t kRetryMs = 1'000;

  bool has_failed_ = false;
  uint64_t wait_since_ms_ = 0;  // 0: no slab waits to be unmapped
  uint64_t retry_ms_ = 0;
  uint64_t count_ = 0;
  uint64_t ns_ = 0;
  uint64_t longest_ns_ = 0;
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_VIEW_SWAPS_H_
