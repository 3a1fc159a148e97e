#ifndef TOOLS_FSCTL_POOL_ENGINE_PROCESSES_H_
#define TOOLS_FSCTL_POOL_ENGINE_PROCESSES_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::fsctl {

// The processes that a user means by a process id, or by the name of a living
// engine on any of this machine's GPUs (or on `gpu`, as --gpu). Ascending.
// NotFound, with similar names; FailedPrecondition if no daemon runs that could
// know a name.
absl::StatusOr<std::vector<pid_t>> ProcessesOf(const std::string& gpu,
                                               const std::string& engine);

// The same for commands that look at one process; else InvalidArgument, which
// lists them.
absl::StatusOr<pid_t> OneProcessOf(const std::string& gpu,
                                   const std::string& engine);

// The exit code for an error of these.
int ExitCodeOfProcess(const absl::Status& status);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_ENGINE_PROCESSES_H_
