#ifndef TOOLS_FSCTL_POOL_OBSERVATION_H_
#define TOOLS_FSCTL_POOL_OBSERVATION_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/abi/view_scoreboard_reader.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

// What fsctl knows of a pool at one moment. Plain value.
struct Observation {
  Pool pool;
  // By engine, for each that has a view: what it says of its blocks, or why we
  // do not know.
  std::map<uint32_t, absl::StatusOr<abi::ViewScoreboardSnapshot>>
      view_scoreboards;
  Moment at;
};

// Errors are ChoosePool's.
absl::StatusOr<Observation> Observe(const std::string& gpu);

// The scoreboard of an engine's view, of the daemon with this epoch and pid:
// read through the view's process or, where that keeps it mapped only, through
// the daemon. NotFound if the process is gone: nobody writes the scoreboard any
// more.
absl::StatusOr<abi::ViewScoreboardSnapshot> FindViewScoreboard(
    const abi::EngineSnapshot& engine, uint64_t epoch, uint32_t daemon_pid);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_OBSERVATION_H_
