#ifndef DAEMON_PROXY_REQUEST_CORS_H_
#define DAEMON_PROXY_REQUEST_CORS_H_

#include <string>
#include <vector>

#include "daemon/proxy/http/request_parser.h"

namespace fineserve::proxy {

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
