#ifndef TOOLS_UP_FLEET_CHECK_H_
#define TOOLS_UP_FLEET_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/config/fleet_description.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// The fleet that fsctl up runs. Its GPUs are complete UUIDs after CompleteGpus.
struct FleetToRun {
  config::Fleet fleet;  // of several machines, what runs on this one
  config::FleetDescription written;  // of the whole file
};

// Reads the fleet and checks that its engines could be started: that their
// programs exist, and that a daemon answers for each GPU. If the fleet has a
// planner, one daemon is enough, and `warnings` names the missing ones: the
// engines of their GPUs start when those daemons are back. InvalidArgument or
// NotFound with the fix; an error of ChoosePool if a daemon is missing.
absl::StatusOr<FleetToRun> ReadFleetOfUp(const std::string& path);
absl::Status CompleteGpus(const Globals& globals, config::Fleet* fleet,
                          std::vector<std::string>* warnings);

// The last step of CompleteGpus. With [overload], an engine that may leave its
// GPU may read the weights of its replicas on this machine's other GPUs, so
// their GPUs become its peer_gpus. All names must be complete UUIDs.
void FindPeerGpus(config::Fleet* fleet);

// Returns the GPUs of the engines among which the planner chooses.
std::vector<std::string> GpusOfPlaces(const config::Fleet& fleet);

// Lists the engines that `fsctl up` would start: each engine with a command,
// with its address and the command quoted for a shell.
std::string PreviewText(const config::Fleet& fleet);

// {"engines": [{"name", "model", "url", "command": [...]}]}.
std::string PreviewJson(const config::Fleet& fleet);

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_FLEET_CHECK_H_
