#ifndef TOOLS_FSCTL_RUN_DAEMON_START_H_
#define TOOLS_FSCTL_RUN_DAEMON_START_H_

#include <string>

#include "absl/status/status.h"

namespace fineserve::fsctl {

// Starts a fineserved with a pool of size "auto" in the background, in a
// session of its own, and waits until it serves; it stays until it is stopped.
// `gpu` is a UUID or the beginning of one; empty: the first GPU that CUDA shows
// to this process. If several calls come at the same moment, in any processes
// of this user, one starts it and the others wait for it. Tells on stderr what
// it does. Unavailable, with the daemon's own last line, if it does not serve.
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
