// fsctl: looks at FineServe and starts engines under it. This file has the list
// of the commands and the flags common to all of them; a command's own flags
// are in its folder.

#include <string.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/cli/command_line.h"
#include "daemon/contract/abi/version.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/suggestion.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

void AddGlobals(Commands& c, std::string* color) {
  CLI::App& app = c.app;
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version",
                       absl::StrCat("fsctl " FINESERVE_VERSION " (ABI version ",
                                    abi::kAbiVersion, ")"));
  app.add_option("--gpu", c.globals.gpu,
                 "Daemon to use: a GPU UUID, a prefix of one, or a socket "
                 "path; needed only if several daemons run");
  app.add_flag("--json", c.globals.json, "Print JSON");
  app.add_option("--color", *color,
                 "Color the output: auto, always or never (default: auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.footer(
      "Examples:\n"
      "  fsctl doctor                    before the first start\n"
      "  fsctl run -- vllm serve Qwen/Qwen3-8B\n"
      "  fsctl status                    what is wrong, and what mends it\n"
      "  fsctl top\n"
      "\nExit codes: 0 success, 1 the answer is bad, 2 wrong usage, "
      "3 no daemon\n");
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

// Null if there is none.
const CLI::App* CommandNamed(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands(
      [&](const CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? nullptr : found[0];
}

int FailAsUnknown(const CLI::App& app, const std::string& name) {
  return Fail(kExitUsage, absl::StrCat("unknown command '", name, "'",
                                       DidYouMean(name, CommandsOf(app)),
                                       "; see fsctl --help"));
}

void AddHelp(Commands& c, const std::string& all) {
  const auto name = std::make_shared<std::string>();
  c.Add("help", "Show the help on a command", "  fsctl help slabs\n",
        [&c, &all, name](const Globals&) {
          if (name->empty()) return Print(all);
          const CLI::App* const command = CommandNamed(c.app, *name);
          if (command == nullptr) return FailAsUnknown(c.app, *name);
          return Print(command->help("fsctl"));
        })
      ->add_option("COMMAND", *name, "A command of fsctl (default: all)");
}

// Adds the commands in the order in which --help shows them. Sets `help` to the
// help on all commands, since a parsed app's help would be that of its command.
void AddAll(Commands& c, std::string* help) {
  const auto add_help = [help](Commands& to) { AddHelp(to, *help); };
  const struct {
    const char* group;
    std::vector<std::function<AddToCommands>> commands;
  } kGroups[] = {
      {"Look (start with status)",
       {AddStatus, AddTop, AddModels, AddEngines, AddSlabs, AddRequests,
        AddTrace, AddUsage, AddStore, AddMetrics}},
      {"Run a fleet",
       {AddUp, AddApply, AddRestart, AddStop, AddStart, AddRun, AddDrain,
        AddLimit, AddEvict, AddActivate, AddDrop, AddRestore, AddUpgrade}},
      {"When something is wrong",
       {AddDoctor, AddLogs, AddStack, AddExplain, AddSupport}},
      {"Plan", {AddPlan, AddProfile, AddGeometry}},
      {"Several machines", {AddNodes, AddKeys}},
      {"Help", {add_help, AddVersion}},
  };
  for (const auto& group : kGroups) {
    for (const auto& add : group.commands) {
      add(c);
      c.app.get_subcommands({}).back()->group(group.group);
    }
  }
  *help = c.app.help();
}

std::string CommandLineOf(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "fsctl"
                        : absl::StrCat("fsctl ", chosen[0]->get_name());
}

// Finds unknown commands, since CLI11 would only say that a subcommand is
// required.
bool IsUnknownCommand(const CLI::App& app, int argc, char** argv) {
  return argc >= 2 && argv[1][0] != '-' &&
         CommandNamed(app, argv[1]) == nullptr;
}

// True if the command for `run` was given without the "--" before it.
bool HasBareCommand(const CLI::App& app, bool without_dashes) {
  if (!without_dashes || !app.got_subcommand("run")) return false;
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  return !words.empty() && words[0].rfind('-', 0) != 0;
}

// Takes the command to run, which follows the first "--", unparsed. Returns the
// number of words before the "--".
int SplitCommand(int argc, char** argv, std::vector<std::string>* command) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--") != 0) continue;
    command->assign(argv + i + 1, argv + argc);
    return i;
  }
  return argc;
}

int Main(int argc, char** argv) {
  Commands commands;
  CLI::App& app = commands.app;
  std::string color = "auto", help;
  AddGlobals(commands, &color);
  AddAll(commands, &help);
  if (argc == 1) {
    Print(help);
    return kExitUsage;
  }
  const int own = SplitCommand(argc, argv, &commands.after_dashes);
  if (IsUnknownCommand(app, own, argv)) {
    return FailAsUnknown(app, argv[1]);
  }
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    if (HasBareCommand(app, own == argc)) {
      return Fail(kExitUsage,
                  absl::StrCat("run takes its command after --: fsctl run -- ",
                               absl::StrJoin(app.remaining(true), " ")));
    }
    return Fail(kExitUsage, cli::UsageText(app, error, CommandLineOf(app)));
  }
  if (own < argc && !app.got_subcommand("run")) {
    return Fail(kExitUsage,
                "only run takes a command after --; see fsctl --help");
  }
  commands.globals.color = UseColor(color, isatty(STDOUT_FILENO));
  return commands.chosen(commands.globals);
}

}  // namespace
}  // namespace fineserve::fsctl

int main(int argc, char** argv) {
  return fineserve::fsctl::FlushOutput(fineserve::fsctl::Main(argc, argv));
}
