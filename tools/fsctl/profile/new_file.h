#ifndef TOOLS_FSCTL_PROFILE_NEW_FILE_H_
#define TOOLS_FSCTL_PROFILE_NEW_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace fineserve::fsctl {

// Fails, with the reason, if the file clearly could not be written, or is no
// regular file, which ReplaceFile would put another in the place of: to be
// asked before minutes of work.
absl::Status CheckWritable(const std::string& path);

// Replaces the file's content atomically: readers see the old text or the new,
// never a part, and so they do after a failure halfway. An error is one line
// with the reason, and leaves no other file behind.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_NEW_FILE_H_
