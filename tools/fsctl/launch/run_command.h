#ifndef TOOLS_FSCTL_LAUNCH_RUN_COMMAND_H_
#define TOOLS_FSCTL_LAUNCH_RUN_COMMAND_H_

#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct RunOptions {
  std::string name;                   // of the engine; empty: made up
  std::vector<std::string> kv_sizes;  // as the user wrote them
  std::string view;                   // $FINESERVE_VIEW; empty: as it is
  std::vector<std::string> command;   // what stands behind "--"
};

// `fsctl run -- CMD ARGS…`: replaces this process by CMD with the shim
// preloaded. Returns (the exit code) only if that fails: 127 command not found,
// 126 not executable.
int RunRun(const Globals& globals, const RunOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LAUNCH_RUN_COMMAND_H_
