#ifndef TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_
#define TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/doctor/doctor_report.h"
#include "tools/fsctl/doctor/nvml_probe.h"
#include "tools/fsctl/process/driver_probe.h"

namespace fineserve::fsctl {

// Checks of this machine, apart from its daemons. Each looks once and changes
// nothing.

// The folder of sockets belongs to this user (or root) and has mode 0700.
Check CheckRuntimeFolder(const std::string& folder);

// The shim exists and can be preloaded: /bin/true under it prints nothing.
Check CheckShim();

// A driver and each of its devices, as ProbeDriver found them.
std::vector<Check> CheckDriver(const std::string& library,
                               const absl::StatusOr<ProbedDriver>& driver);

// No GPU is cut into MIG instances, as GpuModes found.
Check CheckMig(const absl::StatusOr<std::vector<GpuMode>>& gpus);
// Each GPU keeps memory that no process has open.
Check CheckPersistence(const absl::StatusOr<std::vector<GpuMode>>& gpus);
// Each GPU takes several processes.
Check CheckComputeMode(const absl::StatusOr<std::vector<GpuMode>>& gpus);

Check CheckPidfd();
Check CheckMemfdSealing();
Check CheckOpenFiles();
Check CheckMps();

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_
