// `fsctl restart`, `stop` and `start`: drains and starts engines of fsctl up.

#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/fleet/door/door.h"
#include "tools/fsctl/apply/awaited_engines.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

using Kind = apply::Question::Kind;

struct RestartOptions {
  std::vector<std::string> engines;
  bool rolling = false;  // one at a time; without engines: all
  double drain_s = 300;
  double timeout_s = 600;  // for each
};

struct StopOptions {
  std::vector<std::string> engines;
  double drain_s = 300;    // of stop
  double timeout_s = 600;  // for all
};

// The engine has reached its goal when it has been started more often than
// this.
uint64_t StartsBefore(Kind kind, const apply::EngineState& engine) {
  const bool starts_already = engine.pid != 0 && (engine.state == "starting" ||
                                                  engine.state == "silent");
  return kind == Kind::kStart && starts_already ? engine.starts - 1
                                                : engine.starts;
}

// Gives the order to the fsctl up of these engines, and waits until it is done.
int Steer(Kind kind, const std::vector<ChosenEngine>& chosen, double drain_s,
          double timeout_s, bool quiet) {
  AwaitedEngines awaited;
  apply::Question question;
  question.kind = kind;
  question.seconds = drain_s;
  const FleetProcess& up = *chosen[0].up;
  question.fleet_path = up.state.fleet_path;
  for (const ChosenEngine& one : chosen) {
    const apply::EngineState& engine = *one.engine;
    question.engines.push_back(engine.name);
    if (kind == Kind::kStop) {
      awaited.Ends(engine.name);
    } else if (kind == Kind::kRestart || engine.state != "serving") {
      awaited.Serves(engine.name, StartsBefore(kind, engine));
    }
  }
  const auto answer = apply::AskDoor(up.door, question, kChangePatience);
  if (!answer.ok()) return Fail(kExitBadAnswer, answer.status());
  if (!answer->ok()) return Fail(kExitBadAnswer, answer->error);
  return AwaitEngines(up.door, &awaited, timeout_s, quiet);
}

// Groups the engines into rounds, each of one fsctl up.
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

// Prints why not, if none runs.
std::vector<FleetProcess> UpsOrWhyNot(const char* verb) {
  std::vector<FleetProcess> ups = RunningUps();
  if (ups.empty()) {
    Fail(0, absl::StrCat("no fsctl up runs here; ", verb,
                         " the engines as they were started"));
  }
  return ups;
}

// The outcome for `engines` engines, for programs.
int PrintDone(const Globals& globals, const char* done, size_t engines) {
  if (!globals.json) return kExitOk;
  return Print(absl::StrCat("{\"", done, "\": ", engines, "}\n"));
}

int StopOrStart(const Globals& globals, Kind kind, const char* verb,
                const char* done, const StopOptions& options) {
  const std::vector<FleetProcess> ups = UpsOrWhyNot(verb);
  if (ups.empty()) return kExitNoDaemon;
  const auto chosen = ChooseEngines(ups, options.engines);
  if (!chosen.ok()) return Fail(kExitUsage, chosen.status());
  for (const auto& round : Rounds(*chosen, /*rolling=*/false)) {
    const int code =
        Steer(kind, round, options.drain_s, options.timeout_s, globals.json);
    if (code != kExitOk) return code;
  }
  return PrintDone(globals, done, chosen->size());
}

int RunStop(const Globals& globals, const StopOptions& options) {
  return StopOrStart(globals, Kind::kStop, "stop", "stopped", options);
}

int RunStart(const Globals& globals, const StopOptions& options) {
  return StopOrStart(globals, Kind::kStart, "start", "started", options);
}

int RunRestart(const Globals& globals, const RestartOptions& options) {
  if (options.engines.empty() && !options.rolling) {
    return Fail(kExitUsage,
                "give restart an ENGINE, or --rolling for all engines, one at "
                "a time");
  }
  const std::vector<FleetProcess> ups = UpsOrWhyNot("restart");
  if (ups.empty()) return kExitNoDaemon;
  const auto chosen = ChooseEngines(ups, options.engines);
  if (!chosen.ok()) return Fail(kExitUsage, chosen.status());
  for (const auto& round : Rounds(*chosen, options.rolling)) {
    const int code = Steer(Kind::kRestart, round, options.drain_s,
                           options.timeout_s, globals.json);
    if (code != kExitOk) return code;
  }
  return PrintDone(globals, "restarted", chosen->size());
}

}  // namespace

void AddRestart(Commands& c) {
  const auto [command, o] =
      c.Add("restart", "Drain engines of fsctl up and start them again",
            "  fsctl restart llama-a\n"
            "  fsctl restart llama-a llama-b --rolling   one at a time\n"
            "  fsctl restart --rolling                   all engines\n",
            RunRestart);
  command->add_option("ENGINE", o->engines, "Engine names in the fleet file");
  command->add_flag("--rolling", o->rolling,
                    "One at a time, each when the one before serves");
  AddDrainTime(command, &o->drain_s);
  AddTimeout(command, &o->timeout_s);
}

void AddStop(Commands& c) {
  const auto [command, o] =
      c.Add("stop", "Drain engines of fsctl up and let them stay down",
            "  fsctl stop llama-a\n"
            "  fsctl stop llama-a --drain 0    at once, whatever it runs\n"
            "They stay down, with the next fsctl up, too, until fsctl start.\n",
            RunStop);
  command->add_option("ENGINE", o->engines, "Engine names in the fleet file")
      ->required();
  AddDrainTime(command, &o->drain_s);
  AddTimeout(command, &o->timeout_s, "have stopped");
}

void AddStart(Commands& c) {
  const auto [command, o] =
      c.Add("start", "Start engines of fsctl up that were stopped",
            "  fsctl start llama-a\n"
            "One that starts on request, or as a plan says, does so again.\n",
            RunStart);
  command->add_option("ENGINE", o->engines, "Engine names in the fleet file")
      ->required();
  AddTimeout(command, &o->timeout_s);
}

}  // namespace fineserve::fsctl
