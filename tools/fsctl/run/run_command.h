#ifndef TOOLS_FSCTL_RUN_RUN_COMMAND_H_
#define TOOLS_FSCTL_RUN_RUN_COMMAND_H_

#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct RunOptions {
  std::string name;                   // of the engine; empty: DefaultEngineName
  std::vector<std::string> kv_sizes;  // as the user wrote them
  std::string view;                   // $FINESERVE_VIEW; empty: ChooseView
  std::vector<std::string> command;   // after "--"
  // Complete UUIDs of the only GPUs that the command sees, in the order in
  // which it numbers them; if empty, the command sees the GPUs that it would
  // see anyway.
  std::vector<std::string> gpu_uuids = {};
  bool gpu_by_index = false;  // the command takes no UUID
  bool no_daemon = false;     // start no fineserved if there is none
  bool no_view = false;       // whole slabs, for vLLM too
  bool may_evict = false;     // $FINESERVE_EVICT=auto
};
// `fsctl run -- CMD ARGS…`: replaces this process by CMD with the shim
// preloaded. Returns only if that fails, with the exit code.
int RunRun(const Globals& globals, const RunOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_RUN_RUN_COMMAND_H_
