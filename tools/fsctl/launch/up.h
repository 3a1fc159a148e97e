#ifndef TOOLS_FSCTL_LAUNCH_UP_H_
#define TOOLS_FSCTL_LAUNCH_UP_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct UpOptions {
  std::string fleet_path;
  std::string log_folder;  // of engines' output; empty: the runtime folder
  bool mps = false;        // engines' kernels run at once, not in turns
};

// `fsctl up FILE`: starts the engines of a fleet that have a command, each
// under the preload, starts again what ends, and tells what happens, a line
// each. On SIGINT, SIGTERM or SIGHUP all engines are ended, politely first.
// 0 if it was asked to end.
int RunUp(const Globals& globals, const UpOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LAUNCH_UP_H_
