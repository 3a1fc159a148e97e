#ifndef DAEMON_CLI_COMMAND_LINE_H_
#define DAEMON_CLI_COMMAND_LINE_H_

#include <CLI/App.hpp>
#include <CLI/Error.hpp>
#include <string>

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
// version that it asks for, or what is wrong with it. Returns the exit code: 0,
// 1 if what was asked for could not be written, or 2.
int EndOf(const CLI::App& app, const CLI::ParseError& error);

}  // namespace fineserve::cli

#endif  // DAEMON_CLI_COMMAND_LINE_H_
