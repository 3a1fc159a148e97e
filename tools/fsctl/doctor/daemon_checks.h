#ifndef TOOLS_FSCTL_DOCTOR_DAEMON_CHECKS_H_
#define TOOLS_FSCTL_DOCTOR_DAEMON_CHECKS_H_

#include "absl/status/status.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/fsctl/doctor/doctor_report.h"

namespace fineserve::fsctl {

// Checks of one daemon, by what it answered.

// Why it did not: an error of ConnectObserver or of its table.
Check CheckDaemonTrouble(const absl::Status& status);

// It runs in this process's pid namespace.
Check CheckPidNamespace(const abi::ObserverLink& link);

// It can learn which processes the driver lists. It has asked the driver at
// least once: when it started.
Check CheckQuarantine(const abi::TableSnapshot& table);

// No engine still serves on a pool that a former daemon of its GPU has left:
// the daemon neither sees it nor can use that memory.
Check CheckFormerPools(const abi::TableSnapshot& table);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_DAEMON_CHECKS_H_
