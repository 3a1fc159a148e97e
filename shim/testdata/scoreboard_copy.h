#ifndef SHIM_TESTDATA_SCOREBOARD_COPY_H_
#define SHIM_TESTDATA_SCOREBOARD_COPY_H_

// Reads engine scoreboards for tests: copies first, then checks.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/contract/abi/engine_scoreboard.h"

namespace fineserve::shim {

struct ScoreboardCopy {
  abi::LinkState link_state = {};
  std::string link_message;
  std::string program;
  uint64_t epoch = 0;
  uint32_t pid = 0;
  uint64_t begun = 0;  // records begun
  uint64_t small_allocations = 0;
  uint64_t large_allocations = 0;
  uint64_t redirected_allocations = 0;
  uint64_t redirected_bytes = 0;
  uint64_t denied_allocations = 0;
  uint64_t stacks_captured = 0;
  uint64_t room_waits = 0;
  uint64_t created_bytes = 0;
  uint64_t created_most_bytes = 0;
  uint32_t uses[abi::kHookCount][abi::kPathCount] = {};
  uint64_t deepbind_stripped = 0;
  uint64_t foreign_namespaces = 0;
  // Complete ones, oldest first.
  std::vector<abi::DecisionRecord> decisions;
};

inline uint32_t Uses(const ScoreboardCopy& scoreboard, abi::Hook hook,
                     abi::Path path) {
  return scoreboard
      .uses[static_cast<uint32_t>(hook)][static_cast<uint32_t>(path)];
}

// `scoreboard` is kScoreboardBytes long and may be written during the copy.
ScoreboardCopy CopyScoreboard(const void* scoreboard);

// CountScoreboards returns the number of engine scoreboards that a process has
// open, MapScoreboardOf a read-only mapping of the first (null if there is
// none; never unmapped).
int CountScoreboards(pid_t pid);
const void* MapScoreboardOf(pid_t pid);

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_SCOREBOARD_COPY_H_
