#ifndef TOOLS_UP_UP_PREVIEW_H_
#define TOOLS_UP_UP_PREVIEW_H_

#include <string>

#include "daemon/fleet/config/fleet.h"

namespace fineserve::fsctl {

// The engines that `fsctl up` would start: each that has a command, with its
// address and the command as a shell takes it.
std::string PreviewText(const config::Fleet& fleet);

// {"engines": [{"name", "model", "url", "command": [...]}]}.
std::string PreviewJson(const config::Fleet& fleet);

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_UP_PREVIEW_H_
