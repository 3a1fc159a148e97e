#ifndef DAEMON_BASE_CLI_COMMAND_LINE_H_
#define DAEMON_BASE_CLI_COMMAND_LINE_H_

#include <CLI/App.hpp>
#include <CLI/Error.hpp>
#include <string>
#include <vector>

namespace fineserve::cli {

// Looks for the first word of the parsed command line that is a slip of a flag
// or command that `app`, or a command given to it, accepts. Returns "; did you
// mean --once?", or an empty text if there is no such word.
std::string SuggestWord(const CLI::App& app);

// Returns one line that says what is wrong with a command line and where to
// find help: `command` --help.
std::string UsageText(const CLI::App& app, const CLI::ParseError& error,
                      const std::string& command);

// Ends a program whose command line is not carried out: prints the help or the
// version that it asks for, or its mistake. Returns the exit code: 0, 1 if the
// help or version could not be written, or 2 for a mistake.
int EndOf(const CLI::App& app, const CLI::ParseError& error);

// Returns "; did you mean --once?" for the one of `known` that `typed` most
// likely misspells; empty if none is close enough. A slip is a letter too many,
// missing, wrong or swapped with the next. Two slips at most are allowed, and
// fewer in a short word.
std::string DidYouMean(const std::string& typed,
                       const std::vector<std::string>& known);

}  // namespace fineserve::cli

#endif  // DAEMON_BASE_CLI_COMMAND_LINE_H_
