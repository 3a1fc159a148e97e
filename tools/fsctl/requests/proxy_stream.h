#ifndef TOOLS_FSCTL_REQUESTS_PROXY_STREAM_H_
#define TOOLS_FSCTL_REQUESTS_PROXY_STREAM_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/openai/target.h"

namespace fineserve::fsctl {

// Returns the admin port of a fineserve-proxy, from "HOST:PORT".
// InvalidArgument if `address` has another form.
absl::StatusOr<openai::Target> ProxyAt(const std::string& address);

// Returns `text` encoded as one segment of a path, or one value of a query.
std::string PercentEncoded(const std::string& text);

// GETs a path. Returns Unavailable, with what to do, if no proxy answers at
// that address.
absl::StatusOr<openai::Page> AskProxy(const openai::Target& proxy,
                                      const std::string& path);

// GETs a path whose answer is a stream, and passes on each line, without its
// line end, as it arrives. Calls `on_begin` once the answer has begun. Returns
// when the answer ends, with an error unless its status is 200. A line longer
// than a megabyte ends it.
using OnLine = std::function<void(const std::string& line)>;
absl::Status FollowProxy(const openai::Target& proxy, const std::string& path,
                         const std::function<void()>& on_begin,
                         const OnLine& on_line);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_REQUESTS_PROXY_STREAM_H_
