#ifndef TOOLS_FSCTL_EXPLAIN_H_
#define TOOLS_FSCTL_EXPLAIN_H_

#include <sys/types.h>

#include <cstddef>

#include "absl/status/statusor.h"
#include "daemon/abi/scoreboard_reader.h"
#include "tools/fsctl/address_map.h"
#include "tools/fsctl/command.h"

namespace fineserve::fsctl {

struct ExplainOptions {
  pid_t pid = 0;
  size_t last = 20;  // decisions to print; 0: all
};

inline constexpr char kShimName[] = "libfineserve_shim.so";

// What the process has mapped, with the names of functions.
AddressMap ReadMap(pid_t pid);

// Ok if there is such a process and we may look into it.
absl::Status CheckProcess(pid_t pid);

// The scoreboard that the process itself writes; NotFound with no text if it
// has none.
absl::StatusOr<abi::ScoreboardSnapshot> FindScoreboard(pid_t pid);

// `fsctl explain PID`: what the shim in a process decided and why. Needs no
// daemon. Returns the exit code.
int RunExplain(const Globals& globals, const ExplainOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_EXPLAIN_H_
