#ifndef DAEMON_PROXY_REQUEST_ADMIN_HOST_H_
#define DAEMON_PROXY_REQUEST_ADMIN_HOST_H_

#include "absl/strings/string_view.h"
#include "daemon/config/fleet.h"

namespace fineserve::proxy {

// True if the admin port answers a request with this Host field: an address,
// localhost, a name without a dot, which no stranger can own, the host that it
// listens at, and names that the fleet lists. A page of another name in an
// operator's browser can make that name mean this machine (DNS rebinding) and
// would read everything. Without a field the request is no browser's.
bool MayNameAdmin(absl::string_view host,
                  const config::ProxySettings& settings);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_ADMIN_HOST_H_
