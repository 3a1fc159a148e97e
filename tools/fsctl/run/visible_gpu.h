#ifndef TOOLS_FSCTL_RUN_VISIBLE_GPU_H_
#define TOOLS_FSCTL_RUN_VISIBLE_GPU_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/fsctl/process/child.h"
#include "tools/fsctl/process/driver_probe.h"

namespace fineserve::fsctl {

// Environments in which a CUDA program sees one GPU and no other. `uuid` is
// whole ("GPU-…" or "MIG-…"): CUDA takes its beginning too, but NVML does not,
// and programs hand the variable's value to NVML (vLLM from 0.24 on).

// For programs that take a UUID there.
Environment VisibleByUuid(const std::string& uuid);

// For programs that take nothing but a number there, and use it as NVML's
// index, too (vLLM before 0.24): the GPU's index by PCI bus id, the order that
// NVML has. `library` is the driver that the program will load. NotFound if
// that has no such GPU.
absl::StatusOr<Environment> VisibleByIndex(const std::string& uuid,
                                           const std::string& library);

// The same among all of a machine's devices in that order; public for its test.
absl::StatusOr<Environment> IndexAmong(const std::string& uuid,
                                       const ProbedDriver& driver);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_RUN_VISIBLE_GPU_H_
