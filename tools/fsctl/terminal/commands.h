#ifndef TOOLS_FSCTL_TERMINAL_COMMANDS_H_
#define TOOLS_FSCTL_TERMINAL_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// fsctl's command line. Each command adds itself by one of the functions below,
// which is defined in the command's folder.
struct Commands {
  using Run = std::function<int(const Globals&)>;  // returns the exit code

  // Adds a command. `examples` ends with a newline.
  CLI::App* Add(const char* name, const char* what, const char* examples,
                Run run);

  // A command with options, which live as long as the command.
  template <typename Options>
  struct Added {
    CLI::App* command;
    Options* options;
  };
  template <typename Options>
  Added<Options> Add(const char* name, const char* what, const char* examples,
                     int (*run)(const Globals&, const Options&)) {
    const auto options = std::make_shared<Options>();
    const Run chosen = [run, options](const Globals& globals) {
      return run(globals, *options);
    };
    return {Add(name, what, examples, chosen), options.get()};
  }

  CLI::App app{"fsctl: look at FineServe and run engines under it", "fsctl"};
  Globals globals;
  std::vector<std::string> after_dashes;  // the words after the first "--"
  Run chosen;
};

using AddToCommands = void(Commands& c);
AddToCommands AddActivate, AddApply, AddDoctor, AddDrain, AddDrop, AddEngines,
    AddEvict, AddExplain, AddGeometry, AddKeys, AddLimit, AddLogs, AddMetrics,
    AddModels, AddNodes, AddPlan, AddProfile, AddRequests, AddRestart,
    AddRestore, AddRun, AddSlabs, AddStack, AddStart, AddStatus, AddStop,
    AddStore, AddSupport, AddTop, AddTrace, AddUp, AddUpgrade, AddUsage,
    AddVersion;

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_COMMANDS_H_
