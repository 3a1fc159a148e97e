#ifndef TOOLS_FSCTL_PROCESSES_DRIVER_PROBE_H_
#define TOOLS_FSCTL_PROCESSES_DRIVER_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fineserve::fsctl {

struct ProbedDevice {
  std::string name;
  bool virtual_memory = false;     // device attribute 102
  bool posix_descriptors = false;  // device attribute 103
  std::string uuid = "";           // "GPU-…", whole
};

struct ProbedDriver {
  int version = 0;  // 1000 × major + 10 × minor
  std::vector<ProbedDevice> devices;
};

// Loads a CUDA driver ("libcuda.so.1" or a path) and lists its devices, in a
// child process that ends before this returns: fsctl itself never holds driver
// state, and a driver that crashes or hangs becomes a Status.
absl::StatusOr<ProbedDriver> ProbeDriver(const std::string& library,
                                         absl::Duration timeout);
// As ProbeDriver, for all of the machine's devices, in the order of their PCI
// bus ids, whatever this process's environment says about devices.
absl::StatusOr<ProbedDriver> ProbeAllDevices(const std::string& library,
                                             absl::Duration timeout);

// Parses the child's answer; public for its test.
//   "version 13000\ndevice 1 1 GPU-… NVIDIA H200\n"  or  "error <one line>\n"
absl::StatusOr<ProbedDriver> ParseProbe(const std::string& answer);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESSES_DRIVER_PROBE_H_
