#include "tools/fsctl/apply/chosen_engines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/finding/daemon_sockets.h"
#include "tools/fsctl/terminal/suggestion.h"

namespace fineserve::fsctl {
namespace {

const apply::EngineState* FindEngine(const FleetProcess& up,
                                     const std::string& name) {
  const auto& engines = up.state.engines;
  const auto found = std::find_if(
      engines.begin(), engines.end(),
      [&](const apply::EngineState& engine) { return engine.name == name; });
  return found == engines.end() ? nullptr : &*found;
}

// Those that run; an engine that is off stays so.
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
