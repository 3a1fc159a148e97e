#ifndef DAEMON_CONTRACT_ABI_SCOREBOARD_READER_H_
#define DAEMON_CONTRACT_ABI_SCOREBOARD_READER_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/engine_scoreboard.h"

namespace fineserve::abi {

// One decision of a shim, checked: enums are in range, frames are bounded.
struct DecisionSnapshot {
  uint64_t number = 0;   // from 0, since the scoreboard was made
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t lease = 0;
  uint32_t result = 0;  // CUresult
  Hook hook = Hook::kMemAlloc;
  Verdict verdict = Verdict::kPassThrough;
  Reason reason = Reason::kNotKv;
  uint32_t tid = 0;
  uint16_t unnamed_frames = 0;
  std::string rule;              // printable; empty if none matched
  std::vector<uint64_t> frames;  // innermost first
};

// A hook that the program used, and the number of uses by each path.
struct HookUse {
  Hook hook = Hook::kNone;
  std::array<uint32_t, kPathCount> uses = {};  // by Path

  uint32_t by(Path path) const { return uses[static_cast<size_t>(path)]; }
};

// The content of an engine scoreboard. All of it is only that process's claim.
struct ScoreboardSnapshot {
  uint32_t pid = 0;
  uint64_t epoch = 0;      // 0: the scoreboard was made by the shim
  uint32_t engine_id = 0;  // 0: none
  LinkState link_state = LinkState::kNotTried;
  std::string program;       // printable
  std::string link_message;  // printable
  uint64_t small_allocations = 0;
  uint64_t large_allocations = 0;
  uint64_t redirected_allocations = 0;
  uint64_t redirected_bytes = 0;
  uint64_t denied_allocations = 0;
  uint64_t stacks_captured = 0;
  uint64_t deepbind_stripped = 0;
  uint64_t foreign_namespaces = 0;
  uint64_t small_bytes = 0;
  uint64_t passed_bytes = 0;
  uint64_t room_waits = 0;
  uint64_t room_wait_ms = 0;
  uint64_t created_bytes = 0;  // now
  uint64_t created_most_bytes = 0;
  // Resident allocations: on the GPU, the part of resident_bytes that stays,
  // and on the host.
  uint64_t resident_bytes = 0;
  uint64_t pinned_bytes = 0;
  uint64_t lent_bytes = 0;  // part of those: open in other processes
  uint64_t evicted_bytes = 0;
  uint64_t frozen_bytes = 0;   // parameters alone
  uint64_t dropped_bytes = 0;  // of these, another process's
  uint64_t share_socket = 0;   // 0: none
  uint32_t lender_pid = 0;     // of dropped_bytes
  uint32_t readers = 0;        // other processes that read its parameters
  uint64_t gate_waits = 0;     // calls that waited until they came back
  uint32_t plugin_stage = 0;   // fs_kv_progress
  std::vector<HookUse> hooks;  // those that were used at all

  uint64_t decisions_begun = 0;
  std::vector<DecisionSnapshot> decisions;  // oldest first
  uint64_t overwritten = 0;  // older decisions that the ring has dropped
  uint32_t unfinished = 0;   // records that were being written
  uint32_t malformed = 0;    // records that break engine_scoreboard.h's rules
};

// Reads an engine scoreboard through its descriptor. It is read, not mapped: a
// shim without a daemon creates the scoreboard itself, may truncate it at any
// moment, and a mapping would then raise SIGBUS. FailedPrecondition if it has
// another abi_version (the message names both), DataLoss if it is not a
// scoreboard. Any thread.
absl::StatusOr<ScoreboardSnapshot> ReadScoreboard(int fd);

// Finds and reads the scoreboard that the process itself writes. NotFound with
// no message if it has none. Any thread.
absl::StatusOr<ScoreboardSnapshot> FindScoreboard(pid_t pid);

// The content of a view scoreboard, as claimed by the engine
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
  uint64_t sure_blocks = 0;
  uint64_t first_blocks = 0;
  uint64_t most_blocks = 0;    // 0: it says neither
  std::vector<uint32_t> used;  // blocks in use, by view index from 0
};

// Reads a view scoreboard through its descriptor. Like an engine scoreboard, it
// is read, not mapped (scoreboard_reader.h). FailedPrecondition if it has
// another abi_version (the message names both), DataLoss if it is not a view
// scoreboard. Any thread.
absl::StatusOr<ViewScoreboardSnapshot> ReadViewScoreboard(int fd);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_SCOREBOARD_READER_H_
