#ifndef DAEMON_FLEET_CONFIG_ADDRESS_H_
#define DAEMON_FLEET_CONFIG_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fineserve::config {

inline constexpr uint32_t kMostPort = UINT16_MAX;

// Splits "127.0.0.1:8000"; an IPv6 address is in brackets, which are not part
// of `host`. Returns InvalidArgument, saying how to write the address, and sets
// nothing, if there is no host or no port from 0 to 65535.
absl::Status SplitAddress(absl::string_view text, std::string* host,
                          uint16_t* port);

// Address on which a server listens. Without a port, the server is off.
struct ListenAddress {
  std::string host;
  uint16_t port = 0;
  bool on = false;

  bool operator==(const ListenAddress&) const = default;
};

// Parses as SplitAddress does. A port alone ("9470" or ":9470") means this
// machine only, so that opening a port to others always takes an explicit
// address. "off": none.
absl::Status SetListenAddress(const std::string& text, ListenAddress* out);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_ADDRESS_H_
