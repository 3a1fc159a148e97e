#include "daemon/base/errno_status.h"

#include <errno.h>
#include <string.h>

#include "absl/strings/str_cat.h"

namespace fineserve::base {

absl::Status Cannot(absl::string_view what, absl::string_view path) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", strerror(errno)));
}

}  // namespace fineserve::base
