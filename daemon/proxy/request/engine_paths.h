#ifndef DAEMON_PROXY_REQUEST_ENGINE_PATHS_H_
#define DAEMON_PROXY_REQUEST_ENGINE_PATHS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::proxy {

// Decodes "%2F" and the like; a percent sign without two hexadecimal digits
// stays.
std::string PercentDecoded(absl::string_view text);

// True if every server reads `path` as the same path: no segment is empty or a
// dot segment, encoded or not, and none hides a slash, a backslash or a control
// character. An engine's server, or a server in between, may resolve such
// segments, so that a path which looks harmless here means another path there.
bool IsPlainPath(absl::string_view path);

// True if the path is for operating an engine, not for using it: adapters,
// sleep, weight updates, profiling and the like, as vLLM 0.32.0 and SGLang name
// them.
bool IsOperators(absl::string_view path);

// True if a path that the proxy does not know goes to an engine. A path that
// the fleet lists goes there even if it is an operator's.
bool IsPassedOn(absl::string_view path, const config::OtherPaths& others);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_ENGINE_PATHS_H_
