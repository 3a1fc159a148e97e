#include "tools/fsctl/apply/fleet_processes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/apply/ask_door.h"
#include "daemon/apply/door.h"
#include "daemon/config/fleet_path.h"

namespace fineserve::fsctl {
namespace {

constexpr absl::Duration kFindPatience = absl::Seconds(3);

int Rank(const FleetProcess& process) {
  if (process.state.process == "fineserved") return 0;
  return process.state.process == "fsctl up" ? 2 : 1;
}

}  // namespace

std::string FleetProcess::Name() const {
  return absl::StrCat(state.process, " ", state.pid);
}

FoundProcesses FindProcesses(const std::string& runtime_folder) {
  FoundProcesses found;
  for (const std::string& door : apply::ListDoors(runtime_folder)) {
    absl::StatusOr<apply::Answer> state =
        apply::AskDoor(door, apply::Question(), kFindPatience);
    if (state.ok()) {
      found.processes.push_back({door, *std::move(state)});
    } else if (!absl::IsNotFound(state.status())) {
      found.silent.push_back({door, std::string(state.status().message())});
    }
  }
  std::stable_sort(found.processes.begin(), found.processes.end(),
                   [](const FleetProcess& a, const FleetProcess& b) {
                     return Rank(a) < Rank(b);
                   });
  return found;
}

std::vector<FleetProcess> ProcessesOfFleet(
    const std::vector<FleetProcess>& processes, const std::string& fleet_path) {
  std::vector<FleetProcess> theirs;
  for (const FleetProcess& process : processes) {
    const std::string& path = process.state.fleet_path;
    if (!path.empty() && config::IsSameFleet(path, fleet_path)) {
      theirs.push_back(process);
    }
  }
  return theirs;
}

}  // namespace fineserve::fsctl
