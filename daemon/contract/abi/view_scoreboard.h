#ifndef DAEMON_CONTRACT_ABI_VIEW_SCOREBOARD_H_
#define DAEMON_CONTRACT_ABI_VIEW_SCOREBOARD_H_

// A view scoreboard, on which an engine with a view of the pool reports about
// its blocks. One memfd named "fineserve-view", which the daemon makes when the
// view is registered and seals against resizing; the engine alone writes it. It
// may scribble or die at any instruction: readers copy, then check. It decides
// only which of the engine's own slabs are asked back first, and of an engine
// that spans GPUs, which slabs it is leased and uses, and what admission counts
// on less.
//
// Bytes:
//   0       ViewScoreboardHeader                     4,096 bytes
//   4,096   uint32_t used[slab_count + 1]      blocks in use, by view index
//   …       uint32_t wished[slab_count + 1]    1: it would take this slab; read
//                                              for an engine that spans GPUs
//   …       uint32_t mapped[slab_count + 1]    of such an engine's rank: which
//                                              memory of this slab it has
//                                              mapped, as SlabEntry counts it,
//                                              plus 1; 0: none
//
// The rank writes `mapped`, and the process that runs the block pool writes the
// rest.
//
// The engine refreshes `used` and the gauges every few milliseconds while it
// serves, so they may be that old.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/version.h"

namespace fineserve::abi {

inline constexpr char kViewScoreboardMagic[8] = {'F', 'S', 'V', 'I',
                                                 'E', 'W', 0,   0};
inline constexpr char kViewScoreboardMemfdName[] = "fineserve-view";

static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct ViewScoreboardHeader {
  char magic[8];
  uint32_t abi_version;
  uint32_t pid;
  uint64_t scoreboard_bytes;
  uint64_t epoch;
  uint32_t engine_id;
  uint32_t slab_count;
  // Gauges, in blocks and slabs.
  std::atomic<uint64_t> free_blocks;  // of leased slabs
  std::atomic<uint64_t> used_blocks;
  std::atomic<uint64_t> watermark_blocks;  // it asks for more below this
  std::atomic<uint64_t> linked_slabs;
  std::atomic<uint64_t> leaving_slabs;
  // Counters since activation.
  std::atomic<uint64_t> steps_begun;
  std::atomic<uint64_t> steps_ended;
  std::atomic<uint64_t> allocated_blocks;
  std::atomic<uint64_t> freed_blocks;
  // Allocations that found too few blocks, and how many of them happened while
  // the pool had free slabs for this engine: it asked too late.
  std::atomic<uint64_t> failed_allocations;
  std::atomic<uint64_t> watermark_misses;
  std::atomic<uint64_t> returned_slabs;
  // Driver calls that the shim made for this view: to activate it, and since
  // activation.
  std::atomic<uint64_t> driver_calls_to_activate;
  std::atomic<uint64_t> driver_calls_serving;
  // How often a thread of the engine mapped or unmapped slabs while it served,
  // and the total and longest time of that.
  std::atomic<uint64_t> swaps;
  std::atomic<uint64_t> swaps_ns;
  std::atomic<uint64_t> longest_swap_ns;
  // For an engine that spans GPUs: the blocks, by the slab tables of all its
  // GPUs, that it can be sure of now, that it may count on while it runs
  // nothing, and that it can have at most. The daemon that admits its requests
  // counts on no more than that. `most_blocks` is 0 if it is not known, as in
  // engines without these fields.
  std::atomic<uint64_t> sure_blocks;
  std::atomic<uint64_t> first_blocks;
  std::atomic<uint64_t> most_blocks;
  uint8_t reserved[3896];
};
static_assert(sizeof(ViewScoreboardHeader) == 4096);

constexpr size_t ViewScoreboardBytes(uint32_t slab_count) {
  const size_t bytes = sizeof(ViewScoreboardHeader) +
                       3 * (size_t{slab_count} + 1) * sizeof(uint32_t);
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_VIEW_SCOREBOARD_H_
