#ifndef TOOLS_FSCTL_PROCESS_INSPECTED_PROCESS_H_
#define TOOLS_FSCTL_PROCESS_INSPECTED_PROCESS_H_

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "daemon/abi/scoreboard_reader.h"
#include "tools/fsctl/process/address_map.h"

namespace fineserve::fsctl {

inline constexpr char kShimName[] = "libfineserve_shim.so";

// What the process has mapped, with the names of functions.
AddressMap ReadMap(pid_t pid);

// Ok if there is such a process and we may look into it.
absl::Status CheckProcess(pid_t pid);

// The scoreboard that the process itself writes; NotFound with no text if it
// has none.
absl::StatusOr<abi::ScoreboardSnapshot> FindScoreboard(pid_t pid);

// The state of a process's link to its daemon, in words.
const char* LinkWords(abi::LinkState state);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_INSPECTED_PROCESS_H_
