#ifndef DAEMON_PROXY_PAGE_ENGINE_LOG_H_
#define DAEMON_PROXY_PAGE_ENGINE_LOG_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "daemon/base/http/head.h"

namespace fineserve::proxy {

inline constexpr char kLogType[] = "text/plain; charset=utf-8";
inline constexpr size_t kMostLogBytes = 64 << 10;

// Where to find the fsctl up that runs the engines.
struct LogPlace {
  std::string folder;      // has its door
  std::string fleet_path;  // that it runs by; empty: any
};

// Returns the last whole lines of an engine's log, kMostLogBytes at most, from
// the file that fsctl up names. If there is none, an error says why in one
// line. Waits up to `patience` for each fsctl up, and for the disk, so it must
// not run on a thread that others wait for.
LocalAnswer EngineLog(const LogPlace& place, const std::string& engine,
                      absl::Duration patience);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_ENGINE_LOG_H_
