#ifndef DAEMON_BASE_HTTP_HEAD_H_
#define DAEMON_BASE_HTTP_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/api_error.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/base/http/response_parser.h"

namespace fineserve::proxy {

// How the client learns where an answer's body ends.
enum class Framing { kNoBody, kLength, kChunks, kEndOfConnection };

// Returns the framing of the engine's answer for this client: by length if the
// engine gave one; otherwise in chunks, or by the end of the connection for
// HTTP/1.0, which has no chunks.
Framing FramingFor(const RequestParser& request, const ResponseParser& answer);

// True if a field concerns one connection only and is not forwarded (RFC 9110,
// 7.6.1). `connection` is the value of the message's Connection field, which
// may name further such fields.
bool IsHopByHop(absl::string_view name, absl::string_view connection);

// The fields that the proxy adds to a request on its way to an engine.
struct Forwarding {
  absl::string_view authority;  // the engine's, "host:port"
  absl::string_view request_id;
  size_t body_bytes = 0;
  bool drop_keys = false;         // the fields that carry clients' keys
  absl::string_view target = {};  // empty: the client's
  // If it is empty, the client's traceparent and tracestate are forwarded
  // unchanged.
  absl::string_view traceparent = {};
  bool drop_tracestate = false;  // it belongs to no trace
  absl::string_view via = {};    // our name, for Via (RFC 9110, 7.6.3)
};

// Returns the head of a POST to an endpoint outside the fleet, which learns
// only what the client accepts. Uses authority, target, body_bytes and via of
// `how`. `key` is the endpoint's API key; empty if it has none.
std::string OutsideHead(const RequestParser& request, const Forwarding& how,
                        absl::string_view key);

// True if the request's Via field shows that it has passed the proxy of this
// name.
bool HasPassed(const RequestParser& request, absl::string_view via);

// Returns the start line, the fields and the blank line behind them, ready to
// be sent.
std::string RequestHead(const RequestParser& request, const Forwarding& how);
// The fields of an answer that a client gets. From an endpoint outside the
// fleet only those about the content, because its other fields concern the
// proxy and not the client.
enum class AnswerFields { kAll, kContent };
// `cors`: fields that replace the engine's CORS fields; if empty, the engine's
// are passed on. `model`: the model that answered in place of another, for
// x-fineserve-model; empty if none did.
std::string AnswerHead(const ResponseParser& answer, Framing framing,
                       absl::string_view request_id, bool keep_alive,
                       absl::string_view cors = {},
                       AnswerFields fields = AnswerFields::kAll,
                       absl::string_view model = {});

// An answer that comes from the proxy itself.
struct LocalAnswer {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string fields;  // further fields, each with its CRLF
};

// `anthropic`: the client uses Anthropic's API.
LocalAnswer ErrorAnswer(const ApiError& error, bool anthropic = false);

// Returns head and body. If `to_head` is set, the body is left out, and only
// its length is given.
std::string LocalAnswerText(const LocalAnswer& answer, bool to_head,
                            absl::string_view request_id, bool keep_alive);

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_HEAD_H_
