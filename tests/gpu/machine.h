#ifndef TESTS_GPU_MACHINE_H_
#define TESTS_GPU_MACHINE_H_

#include <string>

#include "absl/status/statusor.h"

namespace fineserve::gpu {

// Describes for the report where the checks run.
struct Machine {
  std::string gpu;      // "NVIDIA H200, 139.8 GiB"
  std::string uuid;     // "GPU-…"
  std::string driver;   // "580.65.06, CUDA 13.0", "emulated, CUDA 13.0"
  std::string commit;   // of the bundle or the tree
  std::string system;   // "Linux 6.1.0, glibc 2.36, 16 CPUs (AMD EPYC …)"
  std::string sandbox;  // "none seen", "virtual machine (QEMU), container"
  // "persistence on, compute mode 0, MIG off, confidential computing off, MPS
  // none seen"
  std::string modes;
};

// Queries the driver under test in a child, because a process that has loaded
// the driver has the device open, and would keep memory alive that a check
// expects to be released. An error says in one line what is wrong with the
// driver.
absl::StatusOr<Machine> DescribeMachine(bool emulated,
                                        const std::string& prefix);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_MACHINE_H_
