#ifndef TOOLS_FSCTL_RUN_DAEMON_START_H_
#define TOOLS_FSCTL_RUN_DAEMON_START_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/driver_probe.h"

namespace fineserve::fsctl {

// Environments in which a CUDA program sees only these GPUs, at least one, in
// this order. The UUIDs are whole ("GPU-…" or "MIG-…"): CUDA takes their
// beginnings too, but NVML does not, and programs hand the variable's value to
// NVML (vLLM from 0.24 on). The program computes on the first. If the driver
// lacks one of the others, the program does not see that one, or those behind
// it.

// For programs that take UUIDs there.
Environment VisibleByUuid(const std::vector<std::string>& uuids);

// For programs that take only numbers there, and also use them as NVML's
// indices (vLLM before 0.24): the GPUs' indices by PCI bus id, as in NVML.
// `library` is the driver that the program will load. NotFound if that lacks
// the first.
absl::StatusOr<Environment> VisibleByIndex(
    const std::vector<std::string>& uuids, const std::string& library);

// The same among all of a machine's devices in that order; public for its test.
absl::StatusOr<Environment> IndicesAmong(const std::vector<std::string>& uuids,
                                         const ProbedDriver& driver);

// Starts a fineserved with a pool of size "auto" in the background, in a
// session of its own, and waits until it serves; it stays until it is stopped.
// `gpu` is a UUID or the beginning of one; empty: the first GPU that CUDA shows
// to this process. If several processes of this user call it at the same
// moment, one starts the daemon and the others wait for it. Reports on stderr
// what it does. Unavailable, with the daemon's own last line, if it does not
// serve.
//
// The calling process must have a single thread.
absl::Status StartDaemon(const std::string& gpu);

// The GPU in fineserved's words: `gpu`, or, if that is empty, "0", or
// "emulated" if `library_path` (a list like $LD_LIBRARY_PATH; may be null) has
// the folder of the emulated driver.
std::string GpuToServe(const std::string& gpu, const char* library_path,
                       const std::string& emulated_folder);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_RUN_DAEMON_START_H_
