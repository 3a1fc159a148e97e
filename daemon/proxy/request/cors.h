#ifndef DAEMON_PROXY_REQUEST_CORS_H_
#define DAEMON_PROXY_REQUEST_CORS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::proxy {

// True if the admin port answers a request with this Host field: an address,
// localhost, a name without a dot (which no stranger can own), the host that
// the port listens on, or a name that the fleet lists. Otherwise a page of
// another name in an operator's browser could make that name mean this machine
// (DNS rebinding) and read everything. A request without the field does not
// come from a browser.
bool MayNameAdmin(absl::string_view host,
                  const config::ProxySettings& settings);

// Requests of pages in a browser (Fetch standard, "CORS protocol"). `origins`
// are the origins whose pages may send requests; "*": all.

// True if a browser asks whether it may send a request. It has no key.
bool IsPreflight(const RequestParser& request);

// Returns the header fields, each with its CRLF, with which a browser lets the
// page read an answer, or send the request that it asked about. Empty if the
// page's origin is not allowed, or if the request does not come from a page.
std::string CorsFields(const RequestParser& request,
                       const std::vector<std::string>& origins);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_CORS_H_
