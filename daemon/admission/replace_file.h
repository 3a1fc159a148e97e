#ifndef DAEMON_ADMISSION_REPLACE_FILE_H_
#define DAEMON_ADMISSION_REPLACE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fineserve::admission {

// Writes the file, which its owner alone may read. A reader finds the old text
// or the new one, whole. Unavailable if it cannot be written.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

}  // namespace fineserve::admission

#endif  // DAEMON_ADMISSION_REPLACE_FILE_H_
