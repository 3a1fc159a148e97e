#ifndef DAEMON_FLEET_CONFIG_HEALTH_PROBE_H_
#define DAEMON_FLEET_CONFIG_HEALTH_PROBE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace fineserve::config {

// An engine of a fleet counts as serving while it answers GET /health with 200.
// This file says what to send and how to read the answer. The callers have
// their own sockets, since the proxy must not block and `fsctl up` may.

std::string HealthRequest(const std::string& host, uint16_t port);

// True if the engine serves.
absl::optional<bool> SaysHealthy(absl::string_view answer);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_HEALTH_PROBE_H_
