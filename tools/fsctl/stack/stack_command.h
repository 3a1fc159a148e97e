#ifndef TOOLS_FSCTL_STACK_STACK_COMMAND_H_
#define TOOLS_FSCTL_STACK_STACK_COMMAND_H_

#include <string>
#include <vector>

#include "tools/fsctl/stack/process_stacks.h"

namespace fineserve::fsctl {

// Pure functions. StacksText shows threads with the same stack once.
std::string StacksText(const std::vector<ProcessStacks>& processes, bool color);
std::string StacksJson(const std::vector<ProcessStacks>& processes);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STACK_STACK_COMMAND_H_
