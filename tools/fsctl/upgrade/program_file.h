#ifndef TOOLS_FSCTL_UPGRADE_PROGRAM_FILE_H_
#define TOOLS_FSCTL_UPGRADE_PROGRAM_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace fineserve::fsctl {

// True if both are the same file.
bool IsSameFile(int descriptor, const std::string& path);

// PermissionDenied, saying what is wrong, if users other than root can change
// the file at this absolute path or put another one there.
absl::Status CheckOnlyRootChanges(const std::string& path);

// Puts the program open as `descriptor` in place of the one at `path`,
// atomically: a start at any moment runs the former one or this one, whole. The
// former one is kept as `aside`, unless that is empty. Errors say what to do.
absl::Status PutInPlace(int descriptor, const std::string& path,
                        const std::string& aside);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_PROGRAM_FILE_H_
