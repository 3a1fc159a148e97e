#ifndef DAEMON_BASE_CLI_COMMAND_LINE_H_
#define DAEMON_BASE_CLI_COMMAND_LINE_H_

#include <CLI/App.hpp>
#include <CLI/Error.hpp>
#include <string>
#include <vector>

namespace fineserve::cli {

// Returns "; did you mean --once?" for the first word of the parsed command
// line that is a slip of a flag of `app` or of a command that it was given, or
// of a command that such a command takes. Empty if there is none.
std::string SuggestWord(const CLI::App& app);

// Returns one line that says what is wrong with a command line and where to
// find help: `command` --help.
std::string UsageText(const CLI::App& app, const CLI::ParseError& error,
                      const std::string& command);

// Ends a program whose command line is not carried out: prints the help or the
// version that it asks for, or its mistake. Returns the exit code: 0, 1 if the
// help or version could not be written, or 2 for a mistake.
int EndOf(const CLI::App& app, const CLI::ParseError& error);

// Returns "; did you mean --once?" for the one of `known` that `typed` is most
// likely a slip of: a letter too many, too few, wrong or swapped with the next,
// twice at most and not in a short word. Empty if none is so close.
std::string DidYouMean(const std::string& typed,
                       const std::vector<std::string>& known);

}  // namespace fineserve::cli

#endif  // DAEMON_BASE_CLI_COMMAND_LINE_H_
