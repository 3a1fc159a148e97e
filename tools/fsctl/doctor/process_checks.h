#ifndef TOOLS_FSCTL_DOCTOR_PROCESS_CHECKS_H_
#define TOOLS_FSCTL_DOCTOR_PROCESS_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/abi/scoreboard_reader.h"
#include "tools/fsctl/doctor/doctor_report.h"
#include "tools/fsctl/process/address_map.h"

namespace fineserve::fsctl {

// What `fsctl doctor PID` says of one process. Pure: what was seen comes in.

// The shim is in the process; if not, why not, as far as its environment
// (NUL-separated, as in /proc/PID/environ) and its mappings tell.
Check CheckPreload(const AddressMap& map, const std::string& environment);

// Its link to a daemon.
Check CheckLink(const abi::ScoreboardSnapshot& scoreboard);

// One line per hook that it came to: by which channels, and how often it was
// called; a warning if the driver is loaded and no hook of ours for it was.
std::vector<Check> CheckHooks(const abi::ScoreboardSnapshot& scoreboard,
                              const AddressMap& map);

// Libraries where hooks do not reach, or would not have.
Check CheckNamespaces(const abi::ScoreboardSnapshot& scoreboard);

// Reconciles what went through the hooks with what the driver counts for the
// process. The shim counts what was given out and not what was freed, so what
// it can account for is an upper bound, and what bypassed it a lower one. Up to
// `own_bytes` may be the driver's own (contexts, modules).
Check CheckMemory(const abi::ScoreboardSnapshot& scoreboard,
                  const absl::StatusOr<uint64_t>& drivers_bytes,
                  uint64_t own_bytes);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_PROCESS_CHECKS_H_
