// `fsctl restart`: engines of fsctl up are drained and started again.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/apply/ask_door.h"
#include "tools/fsctl/apply/apply_commands.h"
#include "tools/fsctl/apply/await_engines.h"
#include "tools/fsctl/apply/chosen_engines.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

int Restart(const std::vector<ChosenEngine>& chosen,
            const RestartOptions& options, bool quiet) {
  AwaitedEngines awaited;
  apply::Question question;
  question.kind = apply::Question::Kind::kRestart;
  question.seconds = options.drain_s;
  const FleetProcess& up = *chosen[0].up;
  question.fleet_path = up.state.fleet_path;
  for (const ChosenEngine& one : chosen) {
    question.engines.push_back(one.engine->name);
    awaited.Serves(one.engine->name, one.engine->starts);
  }
  const auto answer = apply::AskDoor(up.door, question, kChangePatience);
  if (!answer.ok()) return Fail(kExitBadAnswer, answer.status());
  if (!answer->ok()) return Fail(kExitBadAnswer, answer->error);
  return AwaitEngines(up.door, &awaited, options.timeout_s, quiet);
}

// Engines of one fsctl up at a time.
std::vector<std::vector<ChosenEngine>> Rounds(
    const std::vector<ChosenEngine>& chosen, bool rolling) {
  std::vector<std::vector<ChosenEngine>> rounds;
  for (const ChosenEngine& one : chosen) {
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
  const std::vector<FleetProcess> ups = RunningUps();
  if (ups.empty()) {
    return Fail(kExitNoDaemon,
                "no fsctl up runs here; restart the engines as they were "
                "started");
  }
  const auto chosen = ChooseEngines(ups, options.engines);
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
