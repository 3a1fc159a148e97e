#ifndef TOOLS_FSCTL_DAEMONS_FIND_ENGINE_H_
#define TOOLS_FSCTL_DAEMONS_FIND_ENGINE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/fsctl/daemons/daemon_choice.h"

namespace fineserve::fsctl {

using Engines = std::vector<abi::EngineSnapshot>;

Engines LivingEngines(const abi::TableSnapshot& table);

// The living engine with this name or, if none has it, this number. NotFound,
// or InvalidArgument if several users have one of this name.
absl::StatusOr<abi::EngineSnapshot> FindEngine(const abi::TableSnapshot& table,
                                               const std::string& engine);

// An engine as one GPU's pool lists it.
struct EngineInPool {
  Pool pool;
  abi::EngineSnapshot engine;
};

// The same in several pools: an engine on several GPUs is in each GPU's pool,
// and the process that runs its block pool is a member there. The first one is
// in one of the pools `asked`, which are some of `all`. Also InvalidArgument,
// with what to do, if different engines have that name or number there.
absl::StatusOr<std::vector<EngineInPool>> FindEngineInPools(
    const std::vector<Pool>& asked, const std::vector<Pool>& all,
    const std::string& engine);

// The processes that a process id, or the name of a living engine on any of
// this machine's GPUs (or on `gpu`, as --gpu), stands for. Ascending. NotFound,
// with similar names; FailedPrecondition if no daemon runs that could know a
// name; an error of CheckProcess.
absl::StatusOr<std::vector<pid_t>> ProcessesOf(const std::string& gpu,
                                               const std::string& engine);

// The same for commands that look at one process; else InvalidArgument, which
// lists them.
absl::StatusOr<pid_t> OneProcessOf(const std::string& gpu,
                                   const std::string& engine);

// Prints an error that ProcessesOf or OneProcessOf returned, and returns its
// exit code.
int FailWithoutProcess(const absl::Status& status);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_FIND_ENGINE_H_
