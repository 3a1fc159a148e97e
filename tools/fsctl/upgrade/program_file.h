#ifndef TOOLS_FSCTL_UPGRADE_PROGRAM_FILE_H_
#define TOOLS_FSCTL_UPGRADE_PROGRAM_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace fineserve::fsctl {

// True if both are the same file.
bool IsSameFile(int descriptor, const std::string& path);

// Returns PermissionDenied, with the reason, if users other than root can
// change the file at this absolute path or put another one there.
absl::Status CheckOnlyRootChanges(const std::string& path);

// Replaces the program at `path` by the one open as `descriptor`, atomically: a
// start at any moment runs either the former or the new program, complete.
// Keeps the former one as `aside`, unless that is empty. Errors say what to do.
absl::Status PutInPlace(int descriptor, const std::string& path,
                        const std::string& aside);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_PROGRAM_FILE_H_
