#ifndef TOOLS_FSCTL_RUN_DAEMON_START_H_
#define TOOLS_FSCTL_RUN_DAEMON_START_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/driver_probe.h"

namespace fineserve::fsctl {

// Environments in which a CUDA program sees only these GPUs (at least one), in
// this order. The UUIDs are complete ("GPU-…" or "MIG-…"): CUDA accepts
// prefixes too, but NVML does not, and programs pass the variable's value to
// NVML (vLLM from 0.24 on). The program computes on the first GPU. If the
// driver lacks one of the others, the program sees neither that one nor those
// after it.

// For programs that accept UUIDs in that variable.
Environment VisibleByUuid(const std::vector<std::string>& uuids);

// For programs that accept only numbers in that variable, and also use them as
// NVML's indices (vLLM before 0.24): the GPUs' indices by PCI bus id, as in
// NVML. `library` is the driver that the program will load. NotFound if the
// driver lacks the first GPU.
absl::StatusOr<Environment> VisibleByIndex(
    const std::vector<std::string>& uuids, const std::string& library);

// As VisibleByIndex, among all of a machine's devices in the order of PCI bus
// ids. Public for its test.
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

// Returns the GPU as an argument of fineserved: `gpu` or, if that is empty,
// "emulated" if `library_path` (a list like $LD_LIBRARY_PATH; may be null)
// contains the folder of the emulated driver, otherwise "0".
std::string GpuToServe(const std::string& gpu, const char* library_path,
                       const std::string& emulated_folder);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_RUN_DAEMON_START_H_
