#include "tools/fsctl/pool/engine_processes.h"

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/pool/find_engine.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/suggestion.h"

namespace fineserve::fsctl {
absl::StatusOr<std::vector<pid_t>> ProcessesOf(const std::string& gpu,
                                               const std::string& engine) {
  pid_t pid = 0;
  if (absl::SimpleAtoi(engine, &pid)) {
    if (pid > 0) return std::vector<pid_t>{pid};
    return absl::InvalidArgumentError(
        absl::StrCat("not a process id: ", engine));
  }
  std::vector<absl::Status> dead;
  std::vector<Pool> pools = AllPools(&dead);
  if (pools.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no fineserved runs here that could know an engine '",
                     engine, "'; give its process id instead"));
  }
  if (!gpu.empty()) {
    absl::StatusOr<Pool> one = Pick(pools, gpu);
    if (!one.ok()) return one.status();
    pools = {*std::move(one)};
  }
  std::set<pid_t> pids;
  std::vector<std::string> names;
  for (const Pool& pool : pools) {
    for (const abi::EngineSnapshot& e : LivingEngines(pool.table)) {
      names.push_back(e.name);
      if (e.name != engine) continue;
      pids.insert(e.member_pids.begin(), e.member_pids.end());
    }
  }
  if (!pids.empty()) return std::vector<pid_t>(pids.begin(), pids.end());
  return absl::NotFoundError(
      absl::StrCat("no engine '", engine, "' lives in a pool",
                   DidYouMean(engine, names), "; see fsctl engines"));
}

absl::StatusOr<pid_t> OneProcessOf(const std::string& gpu,
                                   const std::string& engine) {
  const auto pids = ProcessesOf(gpu, engine);
  if (!pids.ok()) return pids.status();
  if (pids->size() == 1) return pids->front();
  return absl::InvalidArgumentError(absl::StrCat(
      "engine ", engine,
      " has several processes; give one: ", absl::StrJoin(*pids, ", ")));
}

int ExitCodeOfProcess(const absl::Status& status) {
  if (absl::IsFailedPrecondition(status)) return kExitNoDaemon;
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitBadAnswer;
}

}  // namespace fineserve::fsctl
