#ifndef TOOLS_FSCTL_APPLY_FLEET_PROCESSES_H_
#define TOOLS_FSCTL_APPLY_FLEET_PROCESSES_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "daemon/apply/message.h"

namespace fineserve::fsctl {

// Time that a process may take to answer a question that changes something: it
// reads files and asks daemons, all in its own loop.
inline constexpr absl::Duration kChangePatience = absl::Seconds(20);

// A running fineserved, fineserve-proxy or fsctl up.
struct FleetProcess {
  std::string door;     // the path of its door
  apply::Answer state;  // what it says of itself

  // "fineserve-proxy 4711".
  std::string Name() const;
};

// A process that should answer.
struct SilentProcess {
  std::string door;
  std::string why;  // in one line
};

struct FoundProcesses {
  // Those that answer: daemons first, then proxies, then fsctl up. A model that
  // is new is known to the daemons before clients ask for it.
  std::vector<FleetProcess> processes;
  std::vector<SilentProcess> silent;
};
FoundProcesses FindProcesses(const std::string& runtime_folder);

// The processes that run this fleet file.
std::vector<FleetProcess> ProcessesOfFleet(
    const std::vector<FleetProcess>& processes, const std::string& fleet_path);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_APPLY_FLEET_PROCESSES_H_
