#ifndef SHIM_LINK_VIEW_SCOREBOARD_WRITER_H_
#define SHIM_LINK_VIEW_SCOREBOARD_WRITER_H_

#include <atomic>
#include <cstdint>

#include "daemon/abi/view_scoreboard.h"
#include "shim/host/checked_descriptor.h"

namespace fineserve::shim {

// Figures on the engine's view scoreboard besides `used`
// (daemon/abi/view_scoreboard.h).
struct ViewGauges {
  uint64_t free_blocks = 0;
  uint64_t used_blocks = 0;
  uint64_t watermark_blocks = 0;
  uint64_t linked_slabs = 0;
  uint64_t leaving_slabs = 0;
  uint64_t steps_begun = 0;
  uint64_t steps_ended = 0;
  uint64_t allocated_blocks = 0;
  uint64_t freed_blocks = 0;
  uint64_t failed_allocations = 0;
  uint64_t watermark_misses = 0;
  uint64_t returned_slabs = 0;
  uint64_t driver_calls_to_activate = 0;
  uint64_t driver_calls_serving = 0;
  uint64_t swaps = 0;
  uint64_t swaps_ns = 0;
  uint64_t longest_swap_ns = 0;
};

// Writes a view scoreboard: plain stores into memory that the daemon and fsctl
// may read at any time. Its descriptor stays open, because readers look for it
// in /proc/PID/fd when the daemon is dead. Without a scoreboard the functions
// do nothing.
//
// Thread-safe, except for Adopt. A scoreboard that has been replaced stays
// mapped, because another thread may still write it. Trivially destroyed.
class ViewScoreboardWriter {
 public:
  constexpr ViewScoreboardWriter() = default;

  // Adopts a scoreboard that a daemon made for view indices up to `slab_count`,
  // and takes ownership of `fd`. Closes it and returns false if it is too
  // small.
  bool Adopt(int fd, uint64_t epoch, uint32_t engine_id, uint32_t slab_count);

  void Show(const ViewGauges& gauges);
  // Shows the blocks in use of one slab. Ignores an index out of range.
  void ShowUsed(uint32_t view_index, uint32_t blocks);
  uint64_t SumUsed() const;
  // Shows whether the engine, which spans GPUs, would take the slab. Ignores an
  // index out of range.
  void ShowWished(uint32_t view_index, bool wished);

  void Close() { descriptor_.Close(); }

 private:
  struct Scoreboard {
    abi::ViewScoreboardHeader header;
    std::atomic<uint32_t> used[1];  // slab_count + 1
  };

  // Acquire: pairs with the release in Adopt.
  Scoreboard* scoreboard() const {
    return scoreboard_.load(std::memory_order_acquire);
  }

  std::atomic<Scoreboard*> scoreboard_{nullptr};
  // The words after those of `used`.
  static std::atomic<uint32_t>* Wished(Scoreboard* p, uint32_t slab_count) {
    return p->used + slab_count + 1;
  }

  std::atomic<uint32_t> slab_count_{0};
  CheckedDescriptor descriptor_;
};

}  // namespace fineserve::shim

#endif  // SHIM_LINK_VIEW_SCOREBOARD_WRITER_H_
