#include "daemon/base/cli/command_line.h"

#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"

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

// Returns the flags of `app` and of the commands that were given to it, and the
// commands that each of them accepts.
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

// Returns the number of slips that turn `a` into `b`: the optimal string
// alignment distance.
size_t Slips(const std::string& a, const std::string& b) {
  const size_t width = b.size() + 1;
  std::vector<size_t> d((a.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> size_t& {
    return d[i * width + j];
  };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = at(i - 1, j - 1) + (a[i - 1] != b[j - 1]);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      const bool swapped =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

size_t MostSlips(const std::string& typed) {
  const size_t letters = std::count_if(typed.begin(), typed.end(),
                                       [](char c) { return c != '-'; });
  return letters < 3 ? 0 : letters < 5 ? 1 : 2;
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
  // If a required word is missing, an unknown word may be a misspelling of it.
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
  fprintf(stderr, "%s: %s\n", program.c_str(),
          base::WithErrno("cannot write the output").c_str());
  return 1;
}

std::string DidYouMean(const std::string& typed,
                       const std::vector<std::string>& known) {
  size_t least = MostSlips(typed) + 1;
  std::string nearest;
  for (const std::string& word : known) {
    const size_t slips = Slips(typed, word);
    if (slips >= least) continue;
    least = slips;
    nearest = word;
  }
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace fineserve::cli
