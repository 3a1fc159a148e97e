#ifndef TOOLS_FSCTL_DAEMONS_ASK_DAEMONS_H_
#define TOOLS_FSCTL_DAEMONS_ASK_DAEMONS_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/socket.h"

namespace fineserve::fsctl {

// A running fineserved that has a fleet.
struct FleetDaemon {
  std::string gpu;   // UUID
  std::string path;  // where it takes messages; empty: on another machine
  wire::RemoteDaemon remote;
  std::string machine;  // its name in the fleet; empty: there is one machine
};

// True if this machine is one of several, according to the file that its
// fineserve-node writes.
bool IsOneOfSeveral();
// True if a machine of the fleet has this name.
bool IsMachine(const std::string& name);

// All daemons of the runtime folder, by GPU, and those of the other machines
// that this machine's fineserve-node takes for alive; `gpu` narrows them as
// --gpu does. NotFound or InvalidArgument, with what to do, if there is none.
absl::StatusOr<std::vector<FleetDaemon>> FindFleetDaemons(
    const std::string& gpu);

// Asks all daemons at once. Returns the answers in the order of `daemons`;
// NotFound for a daemon that does not answer within `patience`.
std::vector<absl::StatusOr<wire::MessageT>> AskDaemons(
    const std::vector<FleetDaemon>& daemons, const std::string& question,
    std::chrono::milliseconds patience);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_ASK_DAEMONS_H_
