#ifndef DAEMON_BASE_HTTP_TRACEPARENT_H_
#define DAEMON_BASE_HTTP_TRACEPARENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/request_parser.h"

namespace fineserve::proxy {

// The origin of a request in W3C's Trace Context (www.w3.org/TR/trace-context):
// a trace id of 32 hexadecimal digits and a span id of 16.
struct Traceparent {
  std::string trace_id;
  std::string span_id;
  bool sampled = false;
};

// Parses `value`; nullopt unless it has exactly the standard's form: lower
// case; version 00 with nothing behind it, or a later version that may continue
// after a dash; neither id zero; not version ff.
absl::optional<Traceparent> ParseTraceparent(absl::string_view value);

// Returns the field's value, of version 00. Other flags are not passed on,
// since their meaning was not defined when this was written.
std::string TraceparentText(const Traceparent& of);

// Parses the request's field; nullopt if there is none, or two, or a malformed
// one. The request's tracestate then belongs to no trace.
absl::optional<Traceparent> TraceparentOf(const RequestParser& request);

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_TRACEPARENT_H_
