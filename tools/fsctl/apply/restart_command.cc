// `fsctl restart`: engines of fsctl up are drained and started again.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/apply/ask_door.h"
#include "daemon/finding/daemon_sockets.h"
#include "tools/fsctl/apply/apply_commands.h"
#include "tools/fsctl/apply/await_engines.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"
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

// An engine, and the fsctl up that starts it.
struct Chosen {
  const FleetProcess* up;
  const apply::EngineState* engine;
};

std::vector<FleetProcess> Ups() {
  std::vector<FleetProcess> ups =
      FindProcesses(finding::RuntimeFolder()).processes;
  ups.erase(std::remove_if(ups.begin(), ups.end(),
                           [](const FleetProcess& process) {
                             return process.state.process != "fsctl up";
                           }),
            ups.end());
  return ups;
}

// Those that run; an engine that is off stays so.
std::vector<Chosen> AllOf(const std::vector<FleetProcess>& ups) {
  std::vector<Chosen> all;
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

absl::StatusOr<std::vector<Chosen>> Choose(
    const std::vector<FleetProcess>& ups,
    const std::vector<std::string>& names) {
  if (names.empty()) return AllOf(ups);
  std::vector<Chosen> chosen;
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

int Restart(const std::vector<Chosen>& chosen, const RestartOptions& options,
            bool quiet) {
  AwaitedEngines awaited;
  apply::Question question;
  question.kind = apply::Question::Kind::kRestart;
  question.seconds = options.drain_s;
  const FleetProcess& up = *chosen[0].up;
  question.fleet_path = up.state.fleet_path;
  for (const Chosen& one : chosen) {
    question.engines.push_back(one.engine->name);
    awaited.Serves(one.engine->name, one.engine->starts);
  }
  const auto answer = apply::AskDoor(up.door, question, kChangePatience);
  if (!answer.ok()) return Fail(kExitBadAnswer, answer.status());
  if (!answer->ok()) return Fail(kExitBadAnswer, answer->error);
  return AwaitEngines(up.door, &awaited, options.timeout_s, quiet);
}

// Engines of one fsctl up at a time.
std::vector<std::vector<Chosen>> Rounds(const std::vector<Chosen>& chosen,
                                        bool rolling) {
  std::vector<std::vector<Chosen>> rounds;
  for (const Chosen& one : chosen) {
    const bool joins =
        !rolling && !rounds.empty() && rounds.back()[0].up == one.up;
    if (!joins) rounds.emplace_back();
    rounds.back().push_back(one);
  }
  return rounds;
}

}  // namespace

int RunRestart(const Globals& globals, const RestartOptions& options) {
  if (options.engines.empty() && !options.rolling) {
    return Fail(kExitUsage,
                "give restart an ENGINE, or --rolling for all engines, one at "
                "a time");
  }
  const std::vector<FleetProcess> ups = Ups();
  if (ups.empty()) {
    return Fail(kExitNoDaemon,
                "no fsctl up runs here; restart the engines as they were "
                "started");
  }
  const auto chosen = Choose(ups, options.engines);
  if (!chosen.ok()) return Fail(kExitUsage, chosen.status());
  for (const auto& round : Rounds(*chosen, options.rolling)) {
    const int code = Restart(round, options, globals.json);
    if (code != kExitOk) return code;
  }
  if (globals.json) {
    return Print(absl::StrCat("{\"restarted\": ", chosen->size(), "}\n"));
  }
  return kExitOk;
}

}  // namespace fineserve::fsctl
