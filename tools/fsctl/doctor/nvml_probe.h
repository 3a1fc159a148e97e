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

// Returns the bytes of device memory that the driver counts for a process on
// all GPUs. NotFound if the driver lists the process on no GPU; Unavailable
// without NVML, or if NVML does not report the amount (as in some containers).
absl::StatusOr<uint64_t> DriversBytesOf(pid_t pid, const std::string& library,
                                        absl::Duration timeout);

// Setup of a GPU: whether it is divided into MIG instances now and after its
// next reset (both false if it does not support MIG), whether persistence mode
// is on, and CUDA's compute mode (0: shared).
struct GpuMode {
  std::string uuid;
  bool now = false;
  bool next = false;
  bool persistent = true;  // also if NVML does not know
  int compute = 0;
};
// Returns the modes of all GPUs. Unavailable without NVML, or if NVML is too
// old to report them.
absl::StatusOr<std::vector<GpuMode>> GpuModes(const std::string& library,
                                              absl::Duration timeout);

// Parses the child's answer; public for its test.
//   "gpu 0 1 1 0 GPU-…\n", a line for each, or "error <one line>\n"
absl::StatusOr<std::vector<GpuMode>> ParseGpuModes(const std::string& answer);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_NVML_PROBE_H_
