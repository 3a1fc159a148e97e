#include "tools/fsctl/apply/fleet_processes.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/door/door.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/suggestion.h"

namespace fineserve::fsctl {
namespace {

int Rank(const FleetProcess& process) {
  if (process.state.process == "fineserved") return 0;
  return process.state.process == "fsctl up" ? 2 : 1;
}

// Returns 0 for the door of a fineserved, which is named after its GPU.
pid_t PidOf(const std::string& door) {
  const std::string name = std::filesystem::path(door).stem();
  pid_t pid = 0;
  const bool is_pid = absl::SimpleAtoi(name.substr(name.rfind('-') + 1), &pid);
  return is_pid && !absl::StartsWith(name, "GPU-") ? pid : 0;
}

const apply::EngineState* FindEngine(const FleetProcess& up,
                                     const std::string& name) {
  const auto& engines = up.state.engines;
  const auto found = std::find_if(
      engines.begin(), engines.end(),
      [&](const apply::EngineState& engine) { return engine.name == name; });
  return found == engines.end() ? nullptr : &*found;
}

// Returns all engines that run: an engine that is off stays off.
std::vector<ChosenEngine> AllOf(const std::vector<FleetProcess>& ups) {
  std::vector<ChosenEngine> all;
  for (const FleetProcess& up : ups) {
    for (const apply::EngineState& engine : up.state.engines) {
      if (engine.pid != 0) all.push_back({&up, &engine});
    }
  }
  return all;
}

std::vector<std::string> NamesOf(const std::vector<FleetProcess>& ups) {
  std::vector<std::string> names;
  for (const FleetProcess& up : ups) {
    for (const apply::EngineState& engine : up.state.engines) {
      names.push_back(engine.name);
    }
  }
  return names;
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
    // If the process still gives signs of life, the time since its last answer
    // is unknown.
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

std::vector<FleetProcess> RunningUps() {
  std::vector<FleetProcess> ups =
      FindProcesses(finding::RuntimeFolder()).processes;
  ups.erase(std::remove_if(ups.begin(), ups.end(),
                           [](const FleetProcess& process) {
                             return process.state.process != "fsctl up";
                           }),
            ups.end());
  return ups;
}

absl::StatusOr<std::vector<ChosenEngine>> ChooseEngines(
    const std::vector<FleetProcess>& ups,
    const std::vector<std::string>& names) {
  if (names.empty()) return AllOf(ups);
  std::vector<ChosenEngine> chosen;
  for (const std::string& name : names) {
    const size_t before = chosen.size();
    for (const FleetProcess& up : ups) {
      const apply::EngineState* engine = FindEngine(up, name);
      if (engine != nullptr) chosen.push_back({&up, engine});
    }
    if (chosen.size() == before) {
      return absl::NotFoundError(absl::StrCat(
          "no fsctl up starts an engine \"", name, "\"",
          DidYouMean(name, NamesOf(ups)), "; fsctl models lists them"));
    }
    if (chosen.size() > before + 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "several fleets have an engine \"", name, "\"; give each its own"));
    }
  }
  return chosen;
}

}  // namespace fineserve::fsctl
