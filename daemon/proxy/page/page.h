#ifndef DAEMON_PROXY_PAGE_PAGE_H_
#define DAEMON_PROXY_PAGE_PAGE_H_

#include "absl/strings/string_view.h"
#include "daemon/base/http/head.h"

namespace fineserve::proxy {

inline constexpr char kFramesType[] = "text/event-stream; charset=utf-8";

// Returns the page, which was built into this program: page.html with page.css
// and the scripts in it.
absl::string_view PageText();

// Returns PageText with header fields that forbid it everything except its own
// style and scripts (by their hashes) and a connection back to this proxy.
LocalAnswer PageAnswer();

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_PAGE_H_
