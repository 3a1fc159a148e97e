#include "daemon/base/errno_status.h"

#include <string.h>

#include "absl/strings/str_cat.h"

namespace fineserve::base {

std::string WithErrno(absl::string_view what, int error) {
  return absl::StrCat(what, ": ", strerror(error));
}

absl::Status ErrnoStatus(absl::string_view what, absl::StatusCode code) {
  return absl::Status(code, WithErrno(what));
}

absl::Status Cannot(absl::string_view what, absl::string_view path) {
  const int error = errno;  // StrCat may change it
  return absl::UnavailableError(
      WithErrno(absl::StrCat("cannot ", what, " ", path), error));
}

}  // namespace fineserve::base
