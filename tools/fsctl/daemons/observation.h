#ifndef TOOLS_FSCTL_DAEMONS_OBSERVATION_H_
#define TOOLS_FSCTL_DAEMONS_OBSERVATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

// Memory of an evictable engine's processes other than KV, in bytes (design
// note 0039).
struct EngineMemory {
  uint64_t resident_bytes = 0;  // on the GPU
  uint64_t pinned_bytes = 0;    // the part that was exported, and stays
  uint64_t evicted_bytes = 0;   // on the host
  uint64_t gate_waits = 0;      // calls that waited until it came back
  bool operator==(const EngineMemory&) const = default;
};

// fsctl's knowledge of a pool at one moment. Plain value.
struct Observation {
  Pool pool;
  // For each engine id with a view: the engine's report about its blocks, or
  // why it is missing.
  std::map<uint32_t, absl::StatusOr<abi::ViewScoreboardSnapshot>>
      view_scoreboards;
  // For each engine id with a suspended view: the device memory that its
  // process held at its peak and has released, in bytes. Absent if not known.
  std::map<uint32_t, uint64_t> given_up_bytes = {};
  // By engine id, for the engines that may be evicted.
  std::map<uint32_t, EngineMemory> memory = {};
  // Pools of other epochs on the same GPU (former_pools.h).
  std::vector<abi::OldPool> former_pools = {};
  Moment at;
};

// Fails as ChoosePool does.
absl::StatusOr<Observation> Observe(const std::string& gpu);

// Returns the sum over the scoreboards of these processes.
EngineMemory MemoryOf(const std::vector<abi::ScoreboardSnapshot>& processes);

// Returns the scoreboard of an engine's view in the pool of the daemon with
// this epoch and pid. Reads it through the view's process or, if that process
// keeps it only mapped, through the daemon. NotFound if the process is gone and
// no longer writes it.
absl::StatusOr<abi::ViewScoreboardSnapshot> FindViewScoreboard(
    const abi::EngineSnapshot& engine, uint64_t epoch, uint32_t daemon_pid);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_OBSERVATION_H_
