#ifndef DAEMON_PROXY_REQUEST_JSON_NUMBER_H_
#define DAEMON_PROXY_REQUEST_JSON_NUMBER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace fineserve::proxy {

// The whole number behind the first `"name":` of JSON text that may be cut
// anywhere, at whatever depth: quotes inside a JSON string are escaped, so that
// this is a key, not a text. nullopt if there is none, it has no end, or it is
// none of 32 bits.
absl::optional<uint32_t> NumberOf(absl::string_view json,
                                  absl::string_view name);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_JSON_NUMBER_H_
