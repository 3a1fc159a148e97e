#ifndef TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_
#define TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/fsctl/doctor/nvml_probe.h"
#include "tools/fsctl/processes/driver_probe.h"
#include "tools/fsctl/terminal/finding.h"

namespace fineserve::fsctl {

// Checks of this machine, apart from its daemons. Each check looks once and
// changes nothing.

// Checks that the folder of sockets belongs to this user (or root) and has mode
// 0700.
Finding CheckRuntimeFolder(const std::string& folder);

// Checks that the shim exists and can be preloaded: /bin/true under it prints
// nothing.
Finding CheckShim();

// Checks a driver and each of its devices, as ProbeDriver found them.
Findings CheckDriver(const std::string& library,
                     const absl::StatusOr<ProbedDriver>& driver);

// Checks that no GPU is divided into MIG instances, by the result of GpuModes.
Finding CheckMig(const absl::StatusOr<std::vector<GpuMode>>& gpus);
// Checks that each GPU keeps memory that no process has open (persistence
// mode).
Finding CheckPersistence(const absl::StatusOr<std::vector<GpuMode>>& gpus);
// Checks that each GPU accepts several processes.
Finding CheckComputeMode(const absl::StatusOr<std::vector<GpuMode>>& gpus);

Finding CheckPidfd();
Finding CheckMemfdSealing();
Finding CheckOpenFiles();
Finding CheckMps();

// Checks of one daemon, by its answers.

// Reports that the daemon did not answer: an error of ConnectObserver or of its
// table.
Finding CheckDaemonTrouble(const absl::Status& status);

// Checks whether the daemon runs in this process's pid namespace.
Finding CheckPidNamespace(const abi::ObserverLink& link);

// Checks whether the daemon can learn which processes the driver lists. It has
// asked the driver at least once, when it started.
Finding CheckQuarantine(const abi::TableSnapshot& table);

// Checks that no engine still serves in a pool that a former daemon of its GPU
// has left: the present daemon does not see such an engine, and cannot use that
// memory.
Finding CheckFormerPools(const abi::TableSnapshot& table);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_
