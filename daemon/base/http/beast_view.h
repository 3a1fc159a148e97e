#ifndef DAEMON_BASE_HTTP_BEAST_VIEW_H_
#define DAEMON_BASE_HTTP_BEAST_VIEW_H_

#include <boost/beast/core/string_type.hpp>

#include "absl/strings/string_view.h"
#include "daemon/base/http/field_name.h"

namespace fineserve::proxy {

// Views the characters of a Beast string as Abseil's type, or the reverse.
inline absl::string_view View(boost::beast::string_view s) {
  return {s.data(), s.size()};
}

inline boost::beast::string_view View(absl::string_view s) {
  return {s.data(), s.size()};
}

// Returns the value of the first field of this name, in any case; empty if
// there is none. A header has about a dozen fields, and searching them takes a
// third of the time of Beast's index.
template <typename Header>
absl::string_view FieldOf(const Header& header, absl::string_view name) {
  for (const auto& field : header) {
    if (IsSameName(View(field.name_string()), name)) {
      return View(field.value());
    }
  }
  return "";
}

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_BEAST_VIEW_H_
