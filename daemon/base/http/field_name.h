#ifndef DAEMON_BASE_HTTP_FIELD_NAME_H_
#define DAEMON_BASE_HTTP_FIELD_NAME_H_

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// True if both are the name of the same header field, in any case. Inline,
// because a request's names are compared some hundred times, and most differ in
// length.
inline bool IsSameName(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && absl::EqualsIgnoreCase(a, b);
}

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_FIELD_NAME_H_
