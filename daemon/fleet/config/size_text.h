#ifndef DAEMON_FLEET_CONFIG_SIZE_TEXT_H_
#define DAEMON_FLEET_CONFIG_SIZE_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace fineserve::config {

// Sets `bytes` from `text` ("16GiB"). InvalidArgument with the fix.
absl::Status SetByteSize(const std::string& text, uint64_t* bytes);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_SIZE_TEXT_H_
