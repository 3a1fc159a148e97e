#ifndef TOOLS_UP_UP_COMMAND_H_
#define TOOLS_UP_UP_COMMAND_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct UpOptions {
  std::string fleet_path;
  std::string log_folder;     // for the engines' output; empty: runtime folder
  bool mps = false;           // run the engines' kernels concurrently
  bool timestamps = false;    // before each line
  bool keep_orphans = false;  // do not restart what a former daemon left
  bool dry_run = false;       // show what would be started, start nothing
};
// `fsctl up FILE`: starts the engines of a fleet that have a command, each
// under the preload, restarts those that end, and prints a line per event.
// SIGINT or SIGTERM stops all engines and then fsctl, with exit code 0. SIGHUP
// takes the file again.
int RunUp(const Globals& globals, const UpOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_UP_COMMAND_H_
