// `fsctl apply`: makes the running processes take over the changes of a fleet
// file.

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/door/door.h"
#include "tools/fsctl/apply/apply_output.h"
#include "tools/fsctl/apply/awaited_engines.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using QuestionKind = apply::Question::Kind;

struct ApplyOptions {
  std::string fleet_path;
  bool yes = false;      // do not ask
  bool dry_run = false;  // say what would happen
  double drain_s = 300;  // for the running requests of engines that must end
  double timeout_s = 600;
};

// One run of `fsctl apply`.
class Application {
 public:
  Application(const Globals& globals, const ApplyOptions& options)
      : globals_(globals),
        options_(options),
        path_(config::FleetPath(options.fleet_path)) {}

  int Run();

 private:
  int ReadFile();
  int Find();
  // Asks each process whether it can switch to the new fleet file.
  int Check();
  void Show() const;
  bool Agrees() const;
  int Take();
  int Await();
  nlohmann::ordered_json Json() const;
  int Finish(int code);

  absl::StatusOr<apply::Answer> Ask(const FleetProcess& process,
                                    QuestionKind kind) const;
  // The changes for the first process whose fleet differs from the file.
  std::vector<config::SectionChange> Changes() const;

  const Globals& globals_;
  const ApplyOptions& options_;
  const std::string path_;
  config::FleetDescription fleet_;  // as the file says
  std::vector<FleetProcess> processes_;
  std::vector<std::string> notes_;
  std::vector<std::string> errors_;  // by process; empty: it can
  bool applied_ = false;
};

int Application::ReadFile() {
  const absl::StatusOr<config::Fleet> fleet = config::ReadFleet(path_);
  if (!fleet.ok()) return Fail(kExitUsage, fleet.status());
  fleet_ = config::Describe(*fleet);
  if (fleet->cluster.IsOn()) {
    notes_.push_back(
        absl::StrCat("this is about this machine only; the fleet has ",
                     fleet->cluster.machines.size(),
                     ": apply the same file on each of them"));
  }
  return kExitOk;
}

int Application::Find() {
  const FoundProcesses found = FindProcesses(finding::RuntimeFolder());
  if (!found.silent.empty()) {
    return Fail(kExitBadAnswer, absl::StrCat("nothing was changed: ",
                                             found.silent.front().why));
  }
  processes_ = ProcessesOfFleet(found.processes, path_);
  if (!processes_.empty()) return kExitOk;
  std::string others;
  for (const FleetProcess& process : found.processes) {
    if (process.state.fleet_path.empty()) continue;
    absl::StrAppend(&others, "; ", process.Name(), " follows ",
                    process.state.fleet_path);
  }
  return Fail(kExitNoDaemon,
              absl::StrCat("no process follows ", path_, others,
                           others.empty() ? "; start fineserved --fleet, "
                                            "fineserve-proxy and fsctl up"
                                          : "; apply the file that they have"));
}

absl::StatusOr<apply::Answer> Application::Ask(const FleetProcess& process,
                                               QuestionKind kind) const {
  apply::Question question;
  question.kind = kind;
  question.fleet_path = path_;
  question.digest = config::DigestOf(fleet_);
  question.seconds = options_.drain_s;
  return apply::AskDoor(process.door, question, kChangePatience);
}

int Application::Check() {
  int code = kExitOk;
  for (const FleetProcess& process : processes_) {
    const absl::StatusOr<apply::Answer> answer =
        Ask(process, QuestionKind::kCheck);
    std::string& error = errors_.emplace_back();
    if (!answer.ok()) {
      error = std::string(answer.status().message());
    } else {
      error = answer->error;
      for (const std::string& note : answer->notes) notes_.push_back(note);
    }
    if (error.empty()) continue;
    code = kExitBadAnswer;
    Fail(0, absl::StrCat(process.Name(), " cannot take it: ", error));
  }
  return code == kExitOk ? code : Fail(code, "nothing was changed");
}

std::vector<config::SectionChange> Application::Changes() const {
  for (const FleetProcess& process : processes_) {
    auto changes = config::Differences(process.state.fleet, fleet_);
    if (!changes.empty()) return changes;
  }
  return {};
}

void Application::Show() const {
  if (globals_.json) return;
  const auto changes = Changes();
  Print(changes.empty() ? path_ + ": no changes\n"
                        : ChangesText(changes, globals_.color));
  TextTable table({"PROCESS", "WHAT IT DOES"});
  for (size_t i = 0; i < processes_.size(); ++i) {
    const FleetProcess& process = processes_[i];
    table.Add({process.Name(), errors_[i].empty()
                                   ? EffectOn(process.state, fleet_)
                                   : "cannot take it"});
  }
  Print("\n" + table.Render(globals_.color));
  for (const std::string& note : notes_) Print("note: " + note + "\n");
}

bool Application::Agrees() const {
  if (options_.yes) return true;
  Print("\nApply? [y/N] ");
  fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

int Application::Take() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    const absl::StatusOr<apply::Answer> answer =
        Ask(processes_[i], QuestionKind::kTake);
    std::string error(answer.ok() ? answer->error : answer.status().message());
    errors_[i] = error;
    if (error.empty()) continue;
    std::string done;
    for (size_t j = 0; j < i; ++j) {
      absl::StrAppend(&done, done.empty() ? "; it is taken by " : ", ",
                      processes_[j].Name());
    }
    return Fail(kExitBadAnswer,
                absl::StrCat(processes_[i].Name(), ": ", error, done,
                             "; mend that and apply again"));
  }
  applied_ = true;
  return kExitOk;
}

int Application::Await() {
  int code = kExitOk;
  for (const FleetProcess& process : processes_) {
    if (process.state.process != "fsctl up") continue;
    AwaitedEngines engines;
    const EngineEffects effects = EffectsOnEngines(process.state, fleet_);
    for (const std::string& name : effects.started) engines.Serves(name, 0);
    for (const std::string& name : effects.ended) engines.Ends(name);
    for (const std::string& name : effects.restarted) {
      uint64_t starts = 0;
      for (const apply::EngineState& engine : process.state.engines) {
        if (engine.name == name) starts = engine.starts;
      }
      engines.Serves(name, starts);
    }
    const int its =
        AwaitEngines(process.door, &engines, options_.timeout_s, globals_.json);
    if (its != kExitOk) code = its;
  }
  return code;
}

nlohmann::ordered_json Application::Json() const {
  auto processes = nlohmann::ordered_json::array();
  for (size_t i = 0; i < processes_.size(); ++i) {
    const apply::Answer& state = processes_[i].state;
    processes.push_back({{"process", state.process},
                         {"pid", state.pid},
                         {"gpu", state.gpu},
                         {"effect", EffectOn(state, fleet_)},
                         {"error", errors_[i]}});
  }
  return {{"fleet", path_},
          {"changes", ChangesJson(Changes())},
          {"processes", std::move(processes)},
          {"notes", notes_},
          {"applied", applied_}};
}

int Application::Finish(int code) {
  if (globals_.json) Print(JsonText(Json()));
  return code;
}

int Application::Run() {
  if (const int code = ReadFile()) return code;
  const bool may_ask = isatty(STDIN_FILENO) != 0 && !globals_.json;
  if (!options_.yes && !options_.dry_run && !may_ask) {
    return Fail(kExitUsage,
                "no terminal to ask on; give --yes, or --dry-run to see what "
                "would happen");
  }
  if (const int code = Find()) return code;
  const int can = Check();
  Show();
  if (can != kExitOk || options_.dry_run) return Finish(can);
  if (!Agrees()) return Fail(kExitBadAnswer, "nothing was changed");
  if (const int code = Take()) return Finish(code);
  const int code = Await();
  if (code == kExitOk && !globals_.json) Print("applied\n");
  return Finish(code);
}

int RunApply(const Globals& globals, const ApplyOptions& options) {
  return Application(globals, options).Run();
}

}  // namespace

void AddApply(Commands& c) {
  const auto [command, o] = c.Add(
      "apply", "Make a running fleet follow its changed file",
      "  fsctl apply fleet.toml          shows what changes, and asks\n"
      "  fsctl apply fleet.toml --dry-run\n"
      "  fsctl apply fleet.toml --yes --drain 60\n"
      "  fsctl apply fleet.toml --dry-run --json | jq '.changes[].section'\n"
      "fineserved, fineserve-proxy and fsctl up take it, all or none; what "
      "did\n"
      "not change is not restarted.\n",
      RunApply);
  command->add_option("FILE", o->fleet_path, "Fleet file (TOML)")->required();
  command->add_flag("--yes", o->yes, "Do not ask");
  command->add_flag("--dry-run", o->dry_run, "Show what would happen");
  AddDrainTime(command, &o->drain_s);
  AddTimeout(command, &o->timeout_s);
}

}  // namespace fineserve::fsctl
