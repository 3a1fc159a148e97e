#ifndef TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_
#define TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/doctor/doctor_report.h"
#include "tools/fsctl/doctor/driver_probe.h"

namespace fineserve::fsctl {

// What is right or wrong with this machine, apart from daemons. Each looks
// once, changes nothing and returns what it saw.

// The folder of sockets: ours (or root's), 0700.
Check CheckRuntimeFolder(const std::string& folder);

// The shim is there and can be preloaded: /bin/true under it says nothing.
Check CheckShim();

// A driver and each of its devices, as ProbeDriver saw it.
std::vector<Check> CheckDriver(const std::string& library,
                               const absl::StatusOr<ProbedDriver>& driver);

Check CheckPidfd();
Check CheckMemfdSealing();
Check CheckOpenFiles();
Check CheckMps();

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_MACHINE_CHECKS_H_
