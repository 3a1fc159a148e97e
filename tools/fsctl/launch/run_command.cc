#include "tools/fsctl/launch/run_command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/launch/run_plan.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/process/install_paths.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;

// LD_PRELOAD separates by blanks and colons and knows no quoting.
absl::StatusOr<std::string> PreloadableShim() {
  const std::string shim = FindShim();
  if (shim.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "libfineserve_shim.so not found (looked at ",
        absl::StrJoin(ShimPlaces(), ", "), "); set FINESERVE_SHIM to it"));
  }
  if (shim.find_first_of(" :") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "LD_PRELOAD cannot hold a path with a blank or a colon: ", shim,
        "; set FINESERVE_SHIM to another"));
  }
  return shim;
}

// Several daemons are fine: each engine finds the one of its device. One that
// we must not talk to is not.
absl::Status FillFromDaemon(const std::string& gpu, RunPlan* plan) {
  absl::StatusOr<Pool> pool = ChoosePool(gpu);
  const bool any_of_several =
      gpu.empty() && absl::IsInvalidArgument(pool.status());
  if (!pool.ok() && !any_of_several) return pool.status();
  if (any_of_several) return absl::OkStatus();
  if ((pool->table.flags & abi::kTableEmulatedDevice) != 0) {
    plan->library_folder = EmucudaFolder();
  }
  if (absl::StrContains(gpu, '/')) {
    plan->runtime_folder = gpu.substr(0, gpu.rfind('/'));
  }
  if (pool->daemon_answers()) return absl::OkStatus();
  return absl::NotFoundError(DaemonTrouble(*pool));
}

int Exec(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  return Fail(
      error == ENOENT ? kExitNotFound : kExitNotExecutable,
      absl::StrCat(command[0], ": ",
                   error == ENOENT ? "command not found" : strerror(error)));
}

absl::StatusOr<RunPlan> MakePlan(const RunOptions& options) {
  const auto sizes = ParseKvSizes(options.kv_sizes);
  if (!sizes.ok()) return sizes.status();
  if (absl::Status s = CheckEngineName(options.name); !s.ok()) return s;
  if (options.command.empty()) {
    return absl::InvalidArgumentError(
        "run needs a command: fsctl run -- vllm serve MODEL");
  }
  RunPlan plan;
  plan.kv_sizes = *sizes;
  plan.view = options.view;
  plan.engine = options.name.empty()
                    ? DefaultEngineName(options.command[0], getpid())
                    : options.name;
  return plan;
}

}  // namespace

int RunRun(const Globals& globals, const RunOptions& options) {
  absl::StatusOr<RunPlan> plan = MakePlan(options);
  if (!plan.ok()) return Fail(kExitUsage, plan.status());
  const absl::StatusOr<std::string> shim = PreloadableShim();
  if (!shim.ok()) return Fail(kExitBadAnswer, shim.status());
  plan->shim = *shim;
  const absl::Status daemon = FillFromDaemon(globals.gpu, &*plan);
  if (absl::IsFailedPrecondition(daemon)) return Fail(kExitNoDaemon, daemon);
  if (absl::IsInvalidArgument(daemon)) return Fail(kExitUsage, daemon);
  if (!daemon.ok() && options.view == "required") {
    return Fail(kExitNoDaemon, daemon);
  }
  if (!daemon.ok()) {
    Fail(0, absl::StrCat("warning: ", daemon.message(),
                         "; running without a pool"));
  }
  for (const auto& [variable, value] : PlanEnvironment(*plan)) {
    setenv(variable.c_str(), value.c_str(), 1);
  }
  return Exec(options.command);
}

}  // namespace fineserve::fsctl
