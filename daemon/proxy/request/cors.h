#ifndef DAEMON_PROXY_REQUEST_CORS_H_
#define DAEMON_PROXY_REQUEST_CORS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::proxy {

// True if the admin port answers a request with this Host field: an address,
// localhost, a name without a dot, which no stranger can own, the host that it
// listens at, and names that the fleet lists. A page of another name in an
// operator's browser can make that name mean this machine (DNS rebinding) and
// would read everything. Without a field the request is no browser's.
bool MayNameAdmin(absl::string_view host,
                  const config::ProxySettings& settings);

// Requests of pages in a browser (Fetch standard, "CORS protocol"). `origins`
// are those whose pages may ask; "*": all.

// True if a browser asks whether it may send a request. It has no key.
bool IsPreflight(const RequestParser& request);

// The fields, each with its CRLF, by which a browser lets the page read an
// answer, or send what it asked for. Empty if the page's origin may not, or if
// no page asks.
std::string CorsFields(const RequestParser& request,
                       const std::vector<std::string>& origins);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_CORS_H_
