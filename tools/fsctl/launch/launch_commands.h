#ifndef TOOLS_FSCTL_LAUNCH_LAUNCH_COMMANDS_H_
#define TOOLS_FSCTL_LAUNCH_LAUNCH_COMMANDS_H_

#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct RunOptions {
  std::string name;                   // of the engine; empty: DefaultEngineName
  std::vector<std::string> kv_sizes;  // as the user wrote them
  std::string view;                   // $FINESERVE_VIEW; empty: ChooseView
  std::vector<std::string> command;   // after "--"
  // Whole UUID of the only GPU that the command is to see; empty: as usual.
  std::string gpu_uuid = "";
  bool gpu_by_index = false;  // the command takes no UUID
  bool no_daemon = false;     // start no fineserved if there is none
  bool no_view = false;       // whole slabs, for vLLM too
};
// `fsctl run -- CMD ARGS…`: replaces this process by CMD with the shim
// preloaded. Returns only if that fails, with the exit code.
int RunRun(const Globals& globals, const RunOptions& options);

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

#endif  // TOOLS_FSCTL_LAUNCH_LAUNCH_COMMANDS_H_
