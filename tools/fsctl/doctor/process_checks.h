#ifndef TOOLS_FSCTL_DOCTOR_PROCESS_CHECKS_H_
#define TOOLS_FSCTL_DOCTOR_PROCESS_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "tools/fsctl/processes/address_map.h"
#include "tools/fsctl/terminal/finding.h"

namespace fineserve::fsctl {

// The checks of one process that `fsctl doctor PID` makes. Pure.

// Checks that the process has the shim; if not, says why, as far as its
// environment (NUL-separated, as in /proc/PID/environ) and its mappings show.
Finding CheckPreload(const AddressMap& map, const std::string& environment);

// Checks that the process is connected to a daemon.
Finding CheckLink(const abi::ScoreboardSnapshot& scoreboard);

// Checks that the latest KV was all on the GPU whose daemon the process has
// joined, since a process joins only one daemon.
Finding CheckGpus(const abi::ScoreboardSnapshot& scoreboard);

// Returns one line per hook that the process uses: how it found the hook, and
// how often it called it. Warns if the process has the driver loaded and uses
// no driver hook.
Findings CheckHooks(const abi::ScoreboardSnapshot& scoreboard,
                    const AddressMap& map);

// Reports libraries that the hooks cannot reach (dlmopen), and those that they
// reach only because RTLD_DEEPBIND was removed.
Finding CheckNamespaces(const abi::ScoreboardSnapshot& scoreboard);

// Compares the memory that went through the hooks with the driver's count for
// the process. The shim counts allocations but not frees, so its sum is an
// upper bound, and the memory that bypassed it is a lower bound. Up to
// `own_bytes` may belong to the driver itself (contexts, modules).
Finding CheckMemory(const abi::ScoreboardSnapshot& scoreboard,
                    const absl::StatusOr<uint64_t>& drivers_bytes,
                    uint64_t own_bytes);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_PROCESS_CHECKS_H_
