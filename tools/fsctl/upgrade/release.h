#ifndef TOOLS_FSCTL_UPGRADE_RELEASE_H_
#define TOOLS_FSCTL_UPGRADE_RELEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/fsctl/upgrade/serving_daemon.h"

namespace fineserve::fsctl {

// A fineserved's statements about itself.
struct Release {
  std::string version;
  uint32_t abi = 0;
};
// "fineserved 0.1.0 (ABI 10)".
std::string ReleaseName(const Release& release);

// Parses the output of `fineserved --version`. InvalidArgument if that is not a
// fineserved's.
absl::StatusOr<Release> ParseRelease(const std::string& version_text);

// Asks the program at `path`. Errors say what is wrong with the file, too.
absl::StatusOr<Release> AskRelease(const std::string& path);
// The same for the daemon that serves.
absl::StatusOr<Release> AskRelease(const ServingDaemon& daemon);

// Asks the program at `path`, with the arguments, the environment and the
// folder of `daemon`, whether it can go on with the pool that `table` is of.
// FailedPrecondition, in its own words, if not; Unimplemented if it is a
// release that cannot be asked.
absl::Status AskTakeover(const std::string& path, const ServingDaemon& daemon,
                         int table);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_RELEASE_H_
