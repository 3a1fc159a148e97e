#include "tools/fsctl/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/messages.h"
#include "tools/fsctl/daemon_choice.h"
#include "tools/fsctl/install_paths.h"

namespace fineserve::fsctl {
namespace {

constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;

// Ours first: the loader and the linker take the first that fits.
std::string Prepend(const std::string& ours, const char* variable) {
  const char* now = getenv(variable);
  return now != nullptr && now[0] != '\0' ? absl::StrCat(ours, ":", now) : ours;
}

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

absl::StatusOr<std::vector<uint64_t>> ParseKvSizes(
    const std::vector<std::string>& texts) {
  std::vector<uint64_t> sizes;
  for (const std::string& text : texts) {
    uint64_t bytes = 0;
    if (!abi::ParseByteSize(text.c_str(), &bytes) || bytes == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--kv-size ", text, ": not a size; write it like 64MiB"));
    }
    sizes.push_back(bytes);
  }
  if (sizes.size() > abi::kDeclaredSizeCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-size: at most ", abi::kDeclaredSizeCapacity,
                     " sizes, not ", sizes.size()));
  }
  return sizes;
}

absl::Status CheckEngineName(const std::string& name) {
  const bool printable = std::all_of(
      name.begin(), name.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
  if (printable && name.size() < abi::kNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--name: at most ", abi::kNameBytes - 1, " printable ASCII characters"));
}

std::string DefaultEngineName(const std::string& command, int pid) {
  const std::string name =
      absl::StrCat(command.substr(command.rfind('/') + 1), "-", pid);
  const size_t most = abi::kNameBytes - 1;
  return name.size() <= most ? name : name.substr(name.size() - most);
}

Environment PlanEnvironment(const RunPlan& plan) {
  Environment environment = {{"LD_PRELOAD", Prepend(plan.shim, "LD_PRELOAD")},
                             {"FINESERVE_ENGINE", plan.engine}};
  if (!plan.kv_sizes.empty()) {
    environment.emplace_back("FINESERVE_KV_SIZES",
                             absl::StrJoin(plan.kv_sizes, ","));
  }
  if (!plan.library_folder.empty()) {
    environment.emplace_back("LD_LIBRARY_PATH",
                             Prepend(plan.library_folder, "LD_LIBRARY_PATH"));
  }
  if (!plan.runtime_folder.empty()) {
    environment.emplace_back("FINESERVE_RUNTIME_DIR", plan.runtime_folder);
  }
  if (!plan.view.empty()) {
    environment.emplace_back("FINESERVE_VIEW", plan.view);
  }
  return environment;
}

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
