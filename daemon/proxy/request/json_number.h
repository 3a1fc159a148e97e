#ifndef DAEMON_PROXY_REQUEST_JSON_NUMBER_H_
#define DAEMON_PROXY_REQUEST_JSON_NUMBER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace fineserve::proxy {

// Returns the whole number after the first `"name":` in JSON text, at any
// depth. The text may be cut off anywhere. Quotes inside a JSON string are
// escaped, so a match is a key and not text. nullopt if there is no such key,
// if the number may have been cut off, or if it does not fit in 32 bits.
absl::optional<uint32_t> NumberOf(absl::string_view json,
                                  absl::string_view name);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_JSON_NUMBER_H_
