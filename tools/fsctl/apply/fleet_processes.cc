#include "tools/fsctl/apply/fleet_processes.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/apply/ask_door.h"
#include "daemon/apply/door.h"
#include "daemon/config/fleet_path.h"
#include "daemon/finding/daemon_sockets.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

int Rank(const FleetProcess& process) {
  if (process.state.process == "fineserved") return 0;
  return process.state.process == "fsctl up" ? 2 : 1;
}

// 0 for a door of fineserved, whose name is its GPU's.
pid_t PidOf(const std::string& door) {
  const std::string name = std::filesystem::path(door).stem();
  pid_t pid = 0;
  const bool is_pid = absl::SimpleAtoi(name.substr(name.rfind('-') + 1), &pid);
  return is_pid && !absl::StartsWith(name, "GPU-") ? pid : 0;
}

}  // namespace

std::string FleetProcess::Name() const {
  return absl::StrCat(state.process, " ", state.pid);
}

FoundProcesses FindProcesses(const std::string& runtime_folder,
                             absl::Duration hung_patience) {
  FoundProcesses found;
  for (const std::string& door : apply::ListDoors(runtime_folder)) {
    const double patience_s = absl::ToDoubleSeconds(kFindPatience);
    const bool hangs = apply::DoorSilence(door).value_or(-1) > patience_s;
    absl::StatusOr<apply::Answer> state = apply::AskDoor(
        door, apply::Question(), hangs ? hung_patience : kFindPatience);
    if (state.ok()) {
      found.processes.push_back({door, *std::move(state), Now().monotonic_ns});
      continue;
    }
    // One that still turns has not answered for an unknown time.
    const double silence_s = apply::DoorSilence(door).value_or(-1);
    const bool is_gone = absl::IsNotFound(state.status());
    const bool is_still = is_gone || silence_s > patience_s;
    (is_gone ? found.gone : found.silent)
        .push_back({door, std::string(state.status().message()),
                    is_still ? silence_s : -1, PidOf(door),
                    Now().monotonic_ns});
  }
  std::stable_sort(found.processes.begin(), found.processes.end(),
                   [](const FleetProcess& a, const FleetProcess& b) {
                     return Rank(a) < Rank(b);
                   });
  return found;
}

std::vector<std::string> AdminsOfProxies() {
  std::vector<std::string> admins;
  for (const FleetProcess& process :
       FindProcesses(finding::RuntimeFolder()).processes) {
    if (!process.state.admin.empty()) admins.push_back(process.state.admin);
  }
  std::sort(admins.begin(), admins.end());
  return admins;
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
