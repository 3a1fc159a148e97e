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

// Checks of this machine, apart from its daemons. Each looks once and changes
// nothing.

// The folder of sockets belongs to this user (or root) and has mode 0700.
Finding CheckRuntimeFolder(const std::string& folder);

// The shim exists and can be preloaded: /bin/true under it prints nothing.
Finding CheckShim();

// A driver and each of its devices, as ProbeDriver found them.
Findings CheckDriver(const std::string& library,
                     const absl::StatusOr<ProbedDriver>& driver);

// No GPU is cut into MIG instances, as GpuModes found.
Finding CheckMig(const absl::StatusOr<std::vector<GpuMode>>& gpus);
// Each GPU keeps memory that no process has open.
Finding CheckPersistence(const absl::StatusOr<std::vector<GpuMode>>& gpus);
// Each GPU takes several processes.
Finding CheckComputeMode(const absl::StatusOr<std::vector<GpuMode>>& gpus);

Finding CheckPidfd();
Finding CheckMemfdSealing();
Finding CheckOpenFiles();
Finding CheckMps();

// Checks of one daemon, by what it answered.

// The daemon did not answer: an error of ConnectObserver or of its table.
Finding CheckDaemonTrouble(const absl::Status& status);

// Whether the daemon runs in this process's pid namespace.
Finding CheckPidNamespace(const abi::ObserverLink& link);

// Whether the daemon can learn which processes the driver lists. It has asked
// the driver at least once, when it started.
Finding CheckQuarantine(const abi::TableSnapshot& table);

// No engine still serves in a pool that a former daemon of its GPU has left:
// the present daemon does not see such an engine, and cannot use that memory.
Finding CheckFormerPools(const abi::TableSnapshot& table);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_
