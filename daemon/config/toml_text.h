#ifndef DAEMON_CONFIG_TOML_TEXT_H_
#define DAEMON_CONFIG_TOML_TEXT_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace fineserve::config {

// The line (from 1) of the first character outside quotes and comments that is
// not ASCII. TOML allows none there, and toml++ 3.3's parser takes some of them
// (U+00A1 to U+0499) for impossible, in the compiler's sense.
absl::optional<uint32_t> LineOfStrayCharacter(absl::string_view text);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_TOML_TEXT_H_
