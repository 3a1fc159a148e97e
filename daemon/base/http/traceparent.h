#ifndef DAEMON_BASE_HTTP_TRACEPARENT_H_
#define DAEMON_BASE_HTTP_TRACEPARENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/request_parser.h"

namespace fineserve::proxy {

// The origin of a request by W3C's Trace Context
// (www.w3.org/TR/trace-context): ids in hexadecimal digits, 32 and 16 of them.
struct Traceparent {
  std::string trace_id;
  std::string span_id;
  bool sampled = false;
};

// nullopt unless `value` is exactly of that form: lower case, version 00 and
// nothing behind it, or a later version that may go on behind a dash; neither
// id zero; not version ff.
absl::optional<Traceparent> ParseTraceparent(absl::string_view value);

// The field's value, of version 00. The other flags are not passed on, since
// their meaning was not agreed when this was written.
std::string TraceparentText(const Traceparent& of);

// The request's field; nullopt if it has none, two, or a wrong one. Its
// tracestate then belongs to no trace.
absl::optional<Traceparent> TraceparentOf(const RequestParser& request);

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_TRACEPARENT_H_
