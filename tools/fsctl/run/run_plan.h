#ifndef TOOLS_FSCTL_RUN_RUN_PLAN_H_
#define TOOLS_FSCTL_RUN_RUN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/processes/child.h"

namespace fineserve::fsctl {

// Everything that a command needs to run as an engine.
struct RunPlan {
  std::string shim;
  std::string engine;
  std::vector<uint64_t> kv_sizes;
  std::string library_folder;  // searched first; empty: none
  std::string runtime_folder;  // empty: unchanged
  std::string view = "";       // empty: unchanged
  Environment gpu = {};        // by which it sees its GPU; empty: unchanged
  bool may_evict = false;      // false: unchanged
};
// Returns the variables to set. The present content of LD_PRELOAD and
// LD_LIBRARY_PATH is kept, after ours.
Environment PlanEnvironment(const RunPlan& plan);

// True if the command starts an engine whose plugin comes with the shim, vLLM
// or SGLang: its file name is "vllm" or "sglang", or it is a Python interpreter
// that runs that file or a module of that package (-m).
bool HasPlugin(const std::vector<std::string>& command);

// Returns $FINESERVE_VIEW for a command for which the user did not choose it;
// empty: leaves it unchanged. An engine whose plugin comes with the shim gets a
// view, unless `kv_sizes` or the environment sets which of its allocations are
// KV, or the environment sets the view or switches the shim off.
std::string ChooseView(const std::vector<std::string>& command,
                       const std::vector<uint64_t>& kv_sizes);

// "vllm-4711"; shortened at the front if it is too long for an engine's name.
std::string DefaultEngineName(const std::string& command, int pid);

// Parses the sizes. InvalidArgument names the flag and its form.
absl::StatusOr<std::vector<uint64_t>> ParseKvSizes(
    const std::vector<std::string>& texts);
absl::Status CheckEngineName(const std::string& name);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_RUN_RUN_PLAN_H_
