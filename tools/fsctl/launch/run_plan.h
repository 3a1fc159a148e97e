#ifndef TOOLS_FSCTL_LAUNCH_RUN_PLAN_H_
#define TOOLS_FSCTL_LAUNCH_RUN_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::fsctl {

// What the command's environment gets. Split off so that it can be tested.
struct RunPlan {
  std::string shim;
  std::string engine;
  std::vector<uint64_t> kv_sizes;
  std::string library_folder;  // to be found first; empty: none
  std::string runtime_folder;  // empty: as it is
  std::string view = "";       // empty: as it is
};
using Environment = std::vector<std::pair<std::string, std::string>>;

// The variables to set; what LD_PRELOAD and LD_LIBRARY_PATH hold now stays,
// behind ours.
Environment PlanEnvironment(const RunPlan& plan);

// "vllm-4711"; what is too long for an engine's name is cut in front.
std::string DefaultEngineName(const std::string& command, int pid);

// InvalidArgument in the user's terms.
absl::StatusOr<std::vector<uint64_t>> ParseKvSizes(
    const std::vector<std::string>& texts);
absl::Status CheckEngineName(const std::string& name);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LAUNCH_RUN_PLAN_H_
