#ifndef DAEMON_BASE_ERRNO_STATUS_H_
#define DAEMON_BASE_ERRNO_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fineserve::base {

// Returns Unavailable, "cannot open /x: Permission denied", of a call that has
// just failed with errno.
absl::Status Cannot(absl::string_view what, absl::string_view path);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_ERRNO_STATUS_H_
