#ifndef DAEMON_PROXY_RECORD_RECENT_PAGE_H_
#define DAEMON_PROXY_RECORD_RECENT_PAGE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/head.h"
#include "daemon/proxy/record/recorder.h"

namespace fineserve::proxy {

// The admin port's answers under /requests; fineserve-proxy(8) has the paths
// and the fields.

// True if `target` asks for a stream of the requests that end from now on, if
// requests are kept at all.
bool IsFollowed(absl::string_view target);

// The ?model= and ?most= of a query, decoded.
struct RecentQuery {
  std::string model;  // empty: any
  size_t most = 0;
  bool Takes(const Life& life) const {
    return model.empty() || life.model == model;
  }
};
// Returns nullopt if the query has other words or bad numbers.
absl::optional<RecentQuery> ReadRecentQuery(absl::string_view target);

// Answers /requests with the requests under way, then the newest that ended;
// answers /requests/ID with one request and its steps.
LocalAnswer RequestsPage(const Recorder& recorder, absl::string_view target,
                         uint64_t now_ns);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RECORD_RECENT_PAGE_H_
