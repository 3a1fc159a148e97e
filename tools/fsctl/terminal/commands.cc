#include "tools/fsctl/terminal/commands.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {

CLI::App* Commands::Add(const char* name, const char* what,
                        const char* examples, Run run) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer(absl::StrCat("Examples:\n", examples,
                               "\nGlobal flags: --gpu, --json, --color; see "
                               "fsctl --help\n"));
  command->callback([this, run = std::move(run)] { chosen = run; });
  return command;
}

}  // namespace fineserve::fsctl
