#include "tools/fsctl/run/run_command.h"

// `fsctl run`: replaces itself with a command that has the shim preloaded.

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "kernels/driver/emulated_folder.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/install_paths.h"
#include "tools/fsctl/run/daemon_start.h"
#include "tools/fsctl/run/run_plan.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {
namespace {

constexpr char kNoView[] = "0";  // a value of the environment, too, is off

// Rejects a path with a blank or a colon: they separate paths in LD_PRELOAD and
// cannot be quoted.
absl::StatusOr<std::string> PreloadableShim() {
  const std::string shim = FindShim();
  if (shim.empty()) {
    return absl::NotFoundError(
        absl::StrCat("libfineserve_shim.so not found (looked for ",
                     absl::StrJoin(ShimPlaces(), ", "),
                     "); set FINESERVE_SHIM to its path"));
  }
  if (shim.find_first_of(" :") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "LD_PRELOAD cannot contain a path with a blank or a colon: ", shim,
        "; set FINESERVE_SHIM to a copy elsewhere"));
  }
  return shim;
}

// Several daemons are fine, since an engine finds the daemon of its device. A
// daemon of another version is an error.
absl::Status FillFromDaemon(const std::string& gpu, RunPlan* plan) {
  absl::StatusOr<Pool> pool = ChoosePool(gpu);
  const bool any_of_several =
      gpu.empty() && absl::IsInvalidArgument(pool.status());
  if (!pool.ok() && !any_of_several) return pool.status();
  if (any_of_several) return absl::OkStatus();
  if ((pool->table.flags & abi::kTableEmulatedDevice) != 0) {
    plan->library_folder = driver::EmulatedFolder();
  }
  if (finding::IsSocketPath(gpu)) {
    plan->runtime_folder = gpu.substr(0, gpu.rfind('/'));
  }
  if (pool->daemon_answers()) return absl::OkStatus();
  return absl::NotFoundError(DaemonTrouble(*pool));
}

// Starts a daemon if there is none, since users of `run` want an engine with a
// pool. If the user names a daemon by its socket, the user must start it.
absl::Status FindOrStartDaemon(const Globals& globals,
                               const RunOptions& options, RunPlan* plan) {
  const absl::Status found = FillFromDaemon(globals.gpu, plan);
  if (!absl::IsNotFound(found) || options.no_daemon ||
      finding::IsSocketPath(globals.gpu)) {
    return found;
  }
  const absl::Status started = StartDaemon(globals.gpu);
  return started.ok() ? FillFromDaemon(globals.gpu, plan) : started;
}

absl::Status ShowGpu(const RunOptions& options, RunPlan* plan) {
  if (options.gpu_uuids.empty()) return absl::OkStatus();
  if (!options.gpu_by_index) {
    plan->gpu = VisibleByUuid(options.gpu_uuids);
    return absl::OkStatus();
  }
  const std::string folder =
      plan->library_folder.empty() ? "" : plan->library_folder + "/";
  absl::StatusOr<Environment> gpu =
      VisibleByIndex(options.gpu_uuids, folder + "libcuda.so.1");
  if (!gpu.ok()) return gpu.status();
  plan->gpu = *std::move(gpu);
  return absl::OkStatus();
}

// Replaces this process.
int Become(const std::vector<std::string>& command) {
  const int code = Exec(command);
  const int error = errno;
  return Fail(code, absl::StrCat(command[0], ": ",
                                 code == kExitNotFound ? "command not found"
                                                       : strerror(error)));
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
  plan.view = options.no_view        ? std::string(kNoView)
              : options.view.empty() ? ChooseView(options.command, *sizes)
                                     : options.view;
  plan.may_evict = options.may_evict;
  plan.engine = options.name.empty()
                    ? DefaultEngineName(options.command[0], getpid())
                    : options.name;
  return plan;
}

// CLI11 does not know "--", so its usage line would omit the command.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "Usage: fsctl run [OPTIONS] -- COMMAND [ARGS...]\n";
  }
};

}  // namespace

int RunRun(const Globals& globals, const RunOptions& options) {
  absl::StatusOr<RunPlan> plan = MakePlan(options);
  if (!plan.ok()) return Fail(kExitUsage, plan.status());
  // Starts no daemon for a program that does not exist.
  const std::string& program = options.command[0];
  if (!IsProgram(program) && access(program.c_str(), F_OK) != 0) {
    return Fail(kExitNotFound, program + ": command not found");
  }
  const absl::StatusOr<std::string> shim = PreloadableShim();
  if (!shim.ok()) return Fail(kExitBadAnswer, shim.status());
  plan->shim = *shim;
  const absl::Status daemon = FindOrStartDaemon(globals, options, &*plan);
  if (absl::IsFailedPrecondition(daemon)) return Fail(kExitNoDaemon, daemon);
  if (absl::IsInvalidArgument(daemon)) return Fail(kExitUsage, daemon);
  if (!daemon.ok() && plan->view == "required") {
    return Fail(
        kExitNoDaemon,
        absl::StrCat(daemon.message(),
                     options.view.empty()
                         ? "; with --no-view the engine runs without a pool"
                         : ""));
  }
  if (!daemon.ok()) {
    Fail(0, absl::StrCat("warning: ", daemon.message(),
                         "; running without a pool"));
  }
  if (const absl::Status gpu = ShowGpu(options, &*plan); !gpu.ok()) {
    return Fail(kExitBadAnswer, gpu);
  }
  SetEnvironment(PlanEnvironment(*plan));
  return Become(options.command);
}

void AddRun(Commands& c) {
  const auto o = std::make_shared<RunOptions>();
  CLI::App* command = c.Add(
      "run", "Run a command with its KV memory in the pool",
      "  fsctl run -- vllm serve Qwen/Qwen3-8B       shares slab by slab\n"
      "  fsctl run --no-view -- vllm serve Qwen/Qwen3-8B\n"
      "  fsctl run --name chat --kv-size 512MiB -- ./engine --port 8000\n"
      "The command chooses its GPU as usual (CUDA_VISIBLE_DEVICES). If no\n"
      "fineserved runs, one is started for the first GPU that CUDA shows:\n"
      "fineserved --pool auto, in the background, until it is stopped.\n",
      [&c, o](const Globals& globals) {
        o->command = c.after_dashes;
        return RunRun(globals, *o);
      });
  command->formatter(std::make_shared<RunFormatter>());
  command->add_option("--name", o->name,
                      "Engine name; processes with one name form one engine");
  command->add_flag("--no-daemon", o->no_daemon,
                    "Start no fineserved if none runs");
  command
      ->add_option("--kv-size", o->kv_sizes,
                   "Treat allocations of this size, e.g. 512MiB, as KV; "
                   "repeatable")
      ->expected(1);
  CLI::Option* view =
      command
          ->add_flag("--view{required}", o->view,
                     "Share the pool slab by slab through the engine's plugin; "
                     "vLLM and SGLang do by default; =required (default) does "
                     "not start without a daemon, =1 does")
          ->check(CLI::IsMember({"required", "1"}));
  command
      ->add_flag("--no-view", o->no_view,
                 "Hold whole allocations in the pool, vLLM and SGLang too")
      ->excludes(view);
  command->add_flag("--evict", o->may_evict,
                    "Let what it keeps on the GPU leave for the host's memory "
                    "(fsctl evict)");
}

}  // namespace fineserve::fsctl
