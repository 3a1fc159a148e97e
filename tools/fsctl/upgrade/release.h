#ifndef TOOLS_FSCTL_UPGRADE_RELEASE_H_
#define TOOLS_FSCTL_UPGRADE_RELEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/fsctl/upgrade/serving_daemon.h"

namespace fineserve::fsctl {

// The answer of a fineserved about its release.
struct Release {
  std::string version;
  uint32_t abi = 0;
};
// "fineserved 0.1.0 (ABI 10)".
std::string ReleaseName(const Release& release);

// Parses the output of `fineserved --version`. InvalidArgument if the output is
// not a fineserved's.
absl::StatusOr<Release> ParseRelease(const std::string& version_text);

// Asks the program at `path`. Errors also say what is wrong with the file.
absl::StatusOr<Release> AskRelease(const std::string& path);
// Asks the program of the serving daemon.
absl::StatusOr<Release> AskRelease(const ServingDaemon& daemon);

// Asks the program at `path`, with the arguments, the environment and the
// folder of `daemon`, whether it can continue the pool of `table`. Returns
// FailedPrecondition with the program's own message if it cannot; Unimplemented
// if its release cannot be asked.
absl::Status AskTakeover(const std::string& path, const ServingDaemon& daemon,
                         int table);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_RELEASE_H_
