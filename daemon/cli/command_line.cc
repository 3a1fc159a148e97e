#include "daemon/cli/command_line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/cli/suggestion.h"

namespace fineserve::cli {
namespace {

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  return flags;
}

// Flags of `app`, and of the commands that it was given, with the commands that
// these take in turn.
std::vector<std::string> KnownWords(const CLI::App& app) {
  std::vector<std::string> known = FlagsOf(app);
  for (const CLI::App* command : app.get_subcommands()) {
    for (std::string& word : KnownWords(*command)) known.push_back(word);
    for (const CLI::App* one : command->get_subcommands({})) {
      known.push_back(one->get_name());
    }
  }
  return known;
}

}  // namespace

std::string SuggestWord(const CLI::App& app) {
  const std::vector<std::string> known = KnownWords(app);
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    std::string meant = DidYouMean(word.substr(0, word.find('=')), known);
    if (!meant.empty()) return meant;
  }
  return "";
}

std::string UsageText(const CLI::App& app, const CLI::ParseError& error,
                      const std::string& command) {
  std::string what = error.what();
  // A word that is not known may be a slip of the one that is missing.
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (error.get_exit_code() ==
          static_cast<int>(CLI::ExitCodes::RequiredError) &&
      !unknown.empty()) {
    what = CLI::ExtrasError(unknown).what();
  }
  std::replace(what.begin(), what.end(), '\n', ' ');
  return absl::StrCat(what, SuggestWord(app), "; see ", command, " --help");
}

int EndOf(const CLI::App& app, const CLI::ParseError& error) {
  const std::string& program = app.get_name();
  if (error.get_exit_code() != 0) {
    fprintf(stderr, "%s: %s\n", program.c_str(),
            UsageText(app, error, program).c_str());
    return 2;
  }
  app.exit(error);
  std::cout.flush();
  if (fflush(stdout) == 0 && ferror(stdout) == 0 && std::cout) return 0;
  fprintf(stderr, "%s: cannot write the output: %s\n", program.c_str(),
          strerror(errno));
  return 1;
}

}  // namespace fineserve::cli
