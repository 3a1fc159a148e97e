// fineserved: owns one GPU's KV pool.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/descriptor_store.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/fineserved/holder/supervisor.h"
#include "daemon/fineserved/pool_service/kept_pool.h"
#include "daemon/fineserved/server/event_loop.h"
#include "daemon/fineserved/start/daemon.h"
#include "daemon/fineserved/start/gpu_claim.h"
#include "daemon/fineserved/start/options.h"
#include "kernels/driver/descriptor_limit.h"
#include "kernels/driver/emulated_folder.h"

namespace fineserve::server {
namespace {

// The exit code (EX_UNAVAILABLE) of a daemon that cannot begin with a pool, for
// a parent that would otherwise start it again at once.
constexpr int kNothingKept = 69;

std::string Program() {
  char path[PATH_MAX] = {};
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return std::string(path, n > 0 ? static_cast<size_t>(n) : 0);
}

std::vector<std::string> ArgumentsOfChild(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::erase_if(arguments, [](const std::string& argument) {
    return argument.rfind("--supervise", 0) == 0;
  });
  return arguments;
}

void Print(const StartPlan& plan) {
  char uuid[41];
  abi::FormatGpuUuid(plan.device.uuid, uuid);
  printf("GPU       %s, %s, %s, %s free\n", uuid, plan.device.name.c_str(),
         abi::SizeText(plan.device.total_bytes).c_str(),
         abi::SizeText(plan.free_bytes).c_str());
  printf("pool      %s\n", slab::Describe(plan.geometry, plan.slabs).c_str());
  if (!plan.choice.empty()) printf("chosen    %s\n", plan.choice.c_str());
}

// Returns why a daemon could not start by this plan now.
absl::Status CheckPlan(const StartPlan& plan) {
  const absl::StatusOr<driver::Descriptor> claim = ClaimGpu(plan.device);
  if (!claim.ok()) return claim.status();
  const uint64_t pool_bytes = plan.slabs * plan.geometry.slab_bytes();
  if (pool_bytes <= plan.free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "a pool of ", abi::SizeText(pool_bytes), " does not fit: the GPU has ",
      abi::SizeText(plan.free_bytes), " free; give a smaller --pool"));
}

// Returns 2 for a configuration that cannot work here: only that is a usage
// error.
int ExitCode(const absl::Status& s) {
  fprintf(stderr, "fineserved: %s\n", std::string(s.message()).c_str());
  return absl::IsInvalidArgument(s) ? 2 : 1;
}

bool IsKept(const absl::optional<KeptPool>& kept) {
  return kept && !kept->is_lost;
}

int CodeForParent(bool pool_is_kept) {
  return !pool_is_kept && holder::DescriptorStore::Exists() ? kNothingKept : 1;
}

// Avoids exit code 2, with which a program that does not know the flag answers.
int AnswerCheck(const absl::optional<KeptPool>& kept, const StartPlan& plan) {
  if (!kept) {
    fprintf(stderr, "fineserved: no slab table was inherited\n");
    return 1;
  }
  const absl::Status s = CheckTakeover(*kept);
  if (!s.ok()) {
    fprintf(stderr, "fineserved: %s\n", std::string(s.message()).c_str());
    return 1;
  }
  Print(plan);
  return 0;
}

// Plans a start with the kept pool, if there is one. If the GPU has lost that
// pool's memory and no engine is left in it, plans a start with a new pool.
absl::StatusOr<StartPlan> Plan(const Options& options,
                               const backing::DeviceChoice& choice,
                               absl::optional<KeptPool>* kept) {
  if (!*kept) return MakeStartPlan(options.config, choice);
  const absl::StatusOr<StartPlan> plan = MakeStartPlan(choice, **kept);
  if (!absl::IsDataLoss(plan.status())) return plan;
  const std::string lost(plan.status().message());
  const std::string members = LivingMembers((*kept)->state);
  if (!members.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(lost, ", and cannot begin with a new one beside ", members,
                     ": stop them"));
  }
  if (options.check_takeover) return plan;
  log::Warning(
      "{}; no engine is left in it, so this one begins with a new pool. "
      "Without persistence mode a GPU that no process has open forgets its "
      "memory: switch it on (nvidia-smi -pm 1, or nvidia-persistenced)",
      lost);
  Forget(&**kept);
  return MakeStartPlan(options.config, choice);
}

int Run(int argc, char** argv) {
  const absl::variant<Options, int> parsed = ParseOptions(argc, argv);
  if (const int* code = absl::get_if<int>(&parsed)) return *code;
  const auto& options = absl::get<Options>(parsed);
  log::Begin("fineserved", options.config.log_level);
  if (options.supervise && !options.dry_run && !options.check_takeover) {
    driver::RaiseDescriptorLimit();
    return holder::Supervise(Program(), ArgumentsOfChild(argc, argv));
  }
  // Daemon::Serve handles the signals. If the plan is only shown, the program
  // can be interrupted.
  if (!options.dry_run && !options.check_takeover) {
    BlockSignals({SIGHUP, SIGINT, SIGTERM});
  }
  absl::StatusOr<absl::optional<KeptPool>> kept =
      FindKeptPool(holder::DescriptorStore::TakeAll());
  if (!kept.ok()) return ExitCode(kept.status());
  const backing::DeviceChoice choice = {options.config.gpu,
                                        driver::EmulatedFolder()};
  // Numbers GPUs as nvidia-smi does: CUDA's default order begins with the
  // fastest.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/1);
  const absl::StatusOr<StartPlan> plan = Plan(options, choice, &*kept);
  if (!plan.ok()) {
    const int code = ExitCode(plan.status());
    if (options.check_takeover) return 1;
    return code == 1 ? CodeForParent(IsKept(*kept)) : code;
  }
  if (options.check_takeover) return AnswerCheck(*kept, *plan);
  if (options.dry_run) {
    Print(*plan);
    const absl::Status s = CheckPlan(*plan);
    return s.ok() ? 0 : ExitCode(s);
  }
  driver::RaiseDescriptorLimit();
  bool began = IsKept(*kept);
  const absl::Status served = RunDaemon(
      *plan, options.config, options.read_again, *std::move(kept), &began);
  if (served.ok()) return 0;
  const int code = ExitCode(served);
  return code == 1 ? CodeForParent(began) : code;
}

}  // namespace
}  // namespace fineserve::server

int main(int argc, char** argv) {
  // The log's reader may exit first.
  signal(SIGPIPE, SIG_IGN);
  return fineserve::server::Run(argc, argv);
}
