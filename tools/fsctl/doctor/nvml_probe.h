#ifndef TOOLS_FSCTL_DOCTOR_NVML_PROBE_H_
#define TOOLS_FSCTL_DOCTOR_NVML_PROBE_H_

// Questions to NVML (`library`: its name or path), asked in a child process
// that ends before these functions return.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fineserve::fsctl {

// Bytes of device memory that the driver counts for a process on all GPUs.
// NotFound if the driver lists the process on no GPU; Unavailable without NVML,
// or if it does not report the amount (as in some containers).
absl::StatusOr<uint64_t> DriversBytesOf(pid_t pid, const std::string& library,
                                        absl::Duration timeout);

// MIG mode of a GPU: true if it is cut into instances now, and after its next
// reset; both false if it cannot be.
struct MigMode {
  std::string uuid;
  bool now = false;
  bool next = false;
};
// Returns the modes of all GPUs. Unavailable without NVML, or if it is too old
// to know.
absl::StatusOr<std::vector<MigMode>> MigModes(const std::string& library,
                                              absl::Duration timeout);

// Parses the child's answer; public for its test.
//   "gpu 0 1 GPU-…\n", a line for each, or "error <one line>\n"
absl::StatusOr<std::vector<MigMode>> ParseMigModes(const std::string& answer);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_NVML_PROBE_H_
