#ifndef TOOLS_FSCTL_DOCTOR_MEMORY_PROBE_H_
#define TOOLS_FSCTL_DOCTOR_MEMORY_PROBE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fineserve::fsctl {

// Bytes of device memory that the driver counts for a process on all GPUs, by
// NVML (`library`: its name or path), in a child process that ends before this
// returns. NotFound if the driver lists the process on no GPU; Unavailable
// without NVML, or if it does not report the amount (as in some containers).
absl::StatusOr<uint64_t> DriversBytesOf(pid_t pid, const std::string& library,
                                        absl::Duration timeout);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_MEMORY_PROBE_H_
