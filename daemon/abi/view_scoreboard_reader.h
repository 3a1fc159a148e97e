#ifndef DAEMON_ABI_VIEW_SCOREBOARD_READER_H_
#define DAEMON_ABI_VIEW_SCOREBOARD_READER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::abi {

// The content of a view scoreboard, in the engine's own words
// (view_scoreboard.h).
struct ViewScoreboardSnapshot {
  uint32_t pid = 0;
  uint64_t epoch = 0;
  uint32_t engine_id = 0;
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
  std::vector<uint32_t> used;  // blocks in use, by view index from 0
};

// Reads a view scoreboard through its descriptor. It is read, not mapped, as an
// engine scoreboard is (scoreboard_reader.h). FailedPrecondition if it has
// another abi_version (the message names both), DataLoss if it is not a view
// scoreboard. Any thread.
absl::StatusOr<ViewScoreboardSnapshot> ReadViewScoreboard(int fd);

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_VIEW_SCOREBOARD_READER_H_
