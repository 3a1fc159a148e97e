#ifndef DAEMON_PROXY_REQUEST_PERCENT_H_
#define DAEMON_PROXY_REQUEST_PERCENT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// Decodes "%2F" and the like; a percent sign without two hexadecimal digits
// stays.
std::string PercentDecoded(absl::string_view text);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_PERCENT_H_
