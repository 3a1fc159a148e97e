#ifndef TOOLS_FSCTL_PROFILE_NEW_FILE_H_
#define TOOLS_FSCTL_PROFILE_NEW_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace fineserve::fsctl {

// Fails, with the reason, if the file clearly could not be written, or is no
// regular file, which WriteProfile would put another in the place of: to be
// asked before minutes of work.
absl::Status CheckWritable(const std::string& path);

// Replaces the file's content (base::ReplaceFile). An error says what to do.
absl::Status WriteProfile(const std::string& path, const std::string& text);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_NEW_FILE_H_
