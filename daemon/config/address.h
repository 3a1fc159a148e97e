#ifndef DAEMON_CONFIG_ADDRESS_H_
#define DAEMON_CONFIG_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fineserve::config {

// Splits "127.0.0.1:8000"; an IPv6 address stands in brackets, which are not
// part of `host`. InvalidArgument, saying how to write it, and nothing set, if
// there is no host or no port from 0 to 65535.
absl::Status SplitAddress(absl::string_view text, std::string* host,
                          uint16_t* port);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_ADDRESS_H_
