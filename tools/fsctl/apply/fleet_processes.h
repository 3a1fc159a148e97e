#ifndef TOOLS_FSCTL_APPLY_FLEET_PROCESSES_H_
#define TOOLS_FSCTL_APPLY_FLEET_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/fleet/door/message.h"

namespace fineserve::fsctl {

// Time that a process may take to answer a request that changes something. The
// process reads files and asks daemons for it, in its own loop.
inline constexpr absl::Duration kChangePatience = absl::Seconds(20);

// A running fineserved, fineserve-proxy or fsctl up.
struct FleetProcess {
  std::string door;     // the path of its door
  apply::Answer state;  // what it says of itself
  // CLOCK_MONOTONIC time of its answer, to which the ages in the answer refer.
  // 0: just now.
  uint64_t heard_ns = {};

  // "fineserve-proxy 4711".
  std::string Name() const;
};

// A process that should answer.
struct SilentProcess {
  std::string door;
  std::string why;         // in one line
  double for_s = -1;       // since its last sign of life; negative: not known
  pid_t pid = 0;           // 0: the door's name does not say it
  uint64_t heard_ns = {};  // as FleetProcess'
};

struct FoundProcesses {
  // Processes that answer: daemons first, then proxies, then fsctl up, so that
  // the daemons know a new model before clients ask for it.
  std::vector<FleetProcess> processes;
  std::vector<SilentProcess> silent;
  // Processes that were killed and have not been started again under their
  // name.
  std::vector<SilentProcess> gone;
};
// Each process may take kFindPatience to answer. A process that has given no
// sign of life for that long gets only `hung_patience`.
inline constexpr absl::Duration kFindPatience = absl::Seconds(3);
FoundProcesses FindProcesses(const std::string& runtime_folder,
                             absl::Duration hung_patience = kFindPatience);

// Addresses of the admin ports of the proxies that answer, sorted.
std::vector<std::string> AdminsOfProxies();

// The processes that run this fleet file.
std::vector<FleetProcess> ProcessesOfFleet(
    const std::vector<FleetProcess>& processes, const std::string& fleet_path);

// The running `fsctl up`s.
std::vector<FleetProcess> RunningUps();

// An engine and the fsctl up that starts it. Both point into the argument of
// ChooseEngines.
struct ChosenEngine {
  const FleetProcess* up;
  const apply::EngineState* engine;
};

// Returns the engines with these names; without names, all engines that run.
// NotFound, with a suggestion, if there is none; InvalidArgument if several
// fleets have an engine of that name.
absl::StatusOr<std::vector<ChosenEngine>> ChooseEngines(
    const std::vector<FleetProcess>& ups,
    const std::vector<std::string>& names);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_APPLY_FLEET_PROCESSES_H_
