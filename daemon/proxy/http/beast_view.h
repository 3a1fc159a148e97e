#ifndef DAEMON_PROXY_HTTP_BEAST_VIEW_H_
#define DAEMON_PROXY_HTTP_BEAST_VIEW_H_

#include <boost/beast/core/string_type.hpp>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// Views the characters of a Beast string as Abseil's type, or the reverse.
inline absl::string_view View(boost::beast::string_view s) {
  return {s.data(), s.size()};
}

inline boost::beast::string_view View(absl::string_view s) {
  return {s.data(), s.size()};
}

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_HTTP_BEAST_VIEW_H_
