#ifndef TOOLS_FSCTL_STACK_STACK_COMMAND_H_
#define TOOLS_FSCTL_STACK_STACK_COMMAND_H_

#include <string>
#include <vector>

#include "tools/fsctl/stack/process_stacks.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Pure functions. For people, threads with the same stack are shown once.
std::string StacksText(const std::vector<ProcessStacks>& processes, bool color);
std::string StacksJson(const std::vector<ProcessStacks>& processes);

struct StackOptions {
  std::string engine;  // a name or a process id
};

// `fsctl stack ENGINE`: shows where each native thread of an engine's processes
// is. Needs a daemon for names alone. Returns the exit code.
int RunStack(const Globals& globals, const StackOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STACK_STACK_COMMAND_H_
