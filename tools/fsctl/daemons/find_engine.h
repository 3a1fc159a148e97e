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

// Returns the living engine with this name or, if none has it, with this
// number. NotFound, or InvalidArgument if engines of several users have that
// name.
absl::StatusOr<abi::EngineSnapshot> FindEngine(const abi::TableSnapshot& table,
                                               const std::string& engine);

// An engine as the pool of one GPU lists it.
struct EngineInPool {
  Pool pool;
  abi::EngineSnapshot engine;
};

// Finds the engine in several pools: an engine on several GPUs is in each GPU's
// pool, and the process that runs its block pool is a member there. The first
// result is in one of the pools `asked`, a subset of `all`. Also returns
// InvalidArgument, with what to do, if different engines have that name or
// number in `asked`.
absl::StatusOr<std::vector<EngineInPool>> FindEngineInPools(
    const std::vector<Pool>& asked, const std::vector<Pool>& all,
    const std::string& engine);

// Returns the processes meant by a process id, or by the name of a living
// engine on any of this machine's GPUs (or on `gpu`, as --gpu), in ascending
// order. NotFound, with similar names; FailedPrecondition if no daemon runs
// that could know a name; an error of CheckProcess.
absl::StatusOr<std::vector<pid_t>> ProcessesOf(const std::string& gpu,
                                               const std::string& engine);

// As ProcessesOf, for commands that look at one process. If there are several,
// returns InvalidArgument, which lists them.
absl::StatusOr<pid_t> OneProcessOf(const std::string& gpu,
                                   const std::string& engine);

// Prints an error that ProcessesOf or OneProcessOf returned, and returns its
// exit code.
int FailWithoutProcess(const absl::Status& status);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_FIND_ENGINE_H_
