#ifndef DAEMON_BASE_ERRNO_STATUS_H_
#define DAEMON_BASE_ERRNO_STATUS_H_

#include <errno.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fineserve::base {

// Returns "open /x: Permission denied" for a call that has just failed with
// errno, or with `error` if it is given.
std::string WithErrno(absl::string_view what, int error = errno);

// The same as a status.
absl::Status ErrnoStatus(
    absl::string_view what,
    absl::StatusCode code = absl::StatusCode::kUnavailable);

// Returns Unavailable, "cannot open /x: Permission denied".
absl::Status Cannot(absl::string_view what, absl::string_view path);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_ERRNO_STATUS_H_
