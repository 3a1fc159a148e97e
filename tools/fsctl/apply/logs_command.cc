// `fsctl logs`: the output of an engine of fsctl up.

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"

namespace fineserve::fsctl {
namespace {

struct LogsOptions {
  std::string engine;
  unsigned lines = 50;  // the last ones; 0: all
  bool follow = false;
};

// Does not return unless tail cannot be run.
int RunTail(const std::string& path, const LogsOptions& options) {
  // "+1" shows all lines, starting with the first.
  std::string lines = options.lines == 0 ? "+1" : absl::StrCat(options.lines);
  std::string file = path;
  char name[] = "tail", count[] = "-n", follow[] = "-F";
  std::vector<char*> words = {name, count, lines.data()};
  if (options.follow) words.push_back(follow);
  words.insert(words.end(), {file.data(), nullptr});
  execvp(name, words.data());
  return Fail(kExitBadAnswer, absl::StrCat("cannot run tail: ", strerror(errno),
                                           "; the log is ", path));
}

int RunLogs(const Globals& globals, const LogsOptions& options) {
  const std::vector<FleetProcess> ups = RunningUps();
  if (ups.empty()) {
    return Fail(kExitNoDaemon,
                "no fsctl up answers here; an engine that something else "
                "started writes where that sends it (a unit's: journalctl -u "
                "UNIT)");
  }
  const auto chosen = ChooseEngines(ups, {options.engine});
  if (!chosen.ok()) return Fail(kExitUsage, chosen.status());
  const apply::EngineState& engine = *chosen->front().engine;
  if (engine.log_path.empty()) {
    return Fail(
        kExitBadAnswer,
        "this fsctl up is of an older release, which does not say where "
        "its logs are; it prints that at each start of an engine");
  }
  if (globals.json) {
    const nlohmann::ordered_json said = {{"engine", engine.name},
                                         {"path", engine.log_path}};
    return Print(JsonText(said));
  }
  if (access(engine.log_path.c_str(), R_OK) != 0) {
    return Fail(kExitBadAnswer,
                absl::StrCat(engine.log_path, ": ", strerror(errno)));
  }
  return RunTail(engine.log_path, options);
}

}  // namespace

void AddLogs(Commands& c) {
  const auto [command, o] =
      c.Add("logs", "Print the end of an engine's log, or follow it",
            "  fsctl logs llama-a\n"
            "  fsctl logs llama-a --follow\n"
            "  fsctl logs llama-a --lines 0 | grep -i error\n"
            "  fsctl logs llama-a --json | jq -r .path\n",
            RunLogs);
  command
      ->add_option("ENGINE", o->engine,
                   "Its name in the fleet file of a running fsctl up")
      ->required();
  command->add_option("-n,--lines", o->lines,
                      "Number of lines, 0 for all (default: 50)");
  command->add_flag("-f,--follow", o->follow,
                    "Go on with what is written, until Ctrl-C");
}

}  // namespace fineserve::fsctl
