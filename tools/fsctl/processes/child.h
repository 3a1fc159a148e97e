#ifndef TOOLS_FSCTL_PROCESSES_CHILD_H_
#define TOOLS_FSCTL_PROCESSES_CHILD_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace fineserve::fsctl {

// Exit codes that shells use when execvp fails.
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Variables to set on top of this process's environment.
using Environment = std::vector<std::pair<std::string, std::string>>;
void SetEnvironment(const Environment& environment);

// Makes `fd` standard output and standard error. Does nothing if `fd` is not
// open.
void RedirectOutput(int fd);

// Replaces this process by `command`, which is looked up in $PATH. Returns only
// if that fails: kExitNotFound or kExitNotExecutable, with errno set.
int Exec(const std::vector<std::string>& command);

// True if Exec finds a program of this name that it may execute.
bool IsProgram(const std::string& name);

struct ChildResult {
  std::string output;  // at most 64 KiB
  int exit_code = 0;
  int signal = 0;  // that killed it; 0 if it exited
  bool timed_out = false;

  bool succeeded() const { return exit_code == 0 && signal == 0; }
};

// Forks a child that calls `body` with the write end of a pipe and exits with
// the value that `body` returns. Waits for the child to end, and kills it after
// `timeout`. The calling process must have a single thread.
ChildResult RunChild(const std::function<int(int output)>& body,
                     absl::Duration timeout);

// As RunChild, for a function that returns the child's output: libraries that
// it loads, and damage that it does, stay in the child.
ChildResult AskChild(const std::function<std::string()>& answer,
                     absl::Duration timeout);

struct Program {
  std::vector<std::string> command;
  Environment environment;
  std::string input;     // its standard input
  std::string log_path;  // gets its output; empty: ChildResult does
};

// The same for a program.
ChildResult RunProgram(const Program& program, absl::Duration timeout);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESSES_CHILD_H_
