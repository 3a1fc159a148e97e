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

// The way in which the client learns where an answer's body ends.
enum class Framing { kNoBody, kLength, kChunks, kEndOfConnection };

// Returns the framing of the engine's answer for this client: by its length if
// the engine gave one; otherwise in chunks, or, for HTTP/1.0, which has none,
// by the end of the connection.
Framing FramingFor(const RequestParser& request, const ResponseParser& answer);

// True if a field concerns one connection only and is not forwarded (RFC 9110,
// 7.6.1); `connection` is the value of the message's Connection field, which
// may name more of them.
bool IsHopByHop(absl::string_view name, absl::string_view connection);

// Additions to a request's own fields on its way to an engine.
struct Forwarding {
  absl::string_view authority;  // the engine's, "host:port"
  absl::string_view request_id;
  size_t body_bytes = 0;
  bool drop_keys = false;         // the fields that carry clients' keys
  absl::string_view target = {};  // empty: the client's
  // Empty: the client's, and its tracestate, go on as they are.
  absl::string_view traceparent = {};
  bool drop_tracestate = false;  // it belongs to no trace
  absl::string_view via = {};    // our name, for Via (RFC 9110, 7.6.3)
};

// A POST to an endpoint outside the fleet, which learns nothing of the client
// but what it accepts. It uses authority, target, body_bytes and via of `how`.
// `key` is the endpoint's API key; empty if it has none.
std::string OutsideHead(const RequestParser& request, const Forwarding& how,
                        absl::string_view key);

// True if the request has passed the proxy of this name in Via.
bool HasPassed(const RequestParser& request, absl::string_view via);

// Start line and fields, ready to be sent, with the blank line behind them.
std::string RequestHead(const RequestParser& request, const Forwarding& how);
// The fields of an answer that a client gets. An endpoint outside sends fields
// beyond the content about us, not about the client.
enum class AnswerFields { kAll, kContent };
// `cors`: fields that replace the engine's own about origins; if empty, those
// are passed on. `model`: the model that answered in another's place, for
// x-fineserve-model; empty if none did.
std::string AnswerHead(const ResponseParser& answer, Framing framing,
                       absl::string_view request_id, bool keep_alive,
                       absl::string_view cors = {},
                       AnswerFields fields = AnswerFields::kAll,
                       absl::string_view model = {});

// An answer that the proxy gives itself.
struct LocalAnswer {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string fields;  // further fields, each with its CRLF
};

// `anthropic`: the client uses Anthropic's API.
LocalAnswer ErrorAnswer(const ApiError& error, bool anthropic = false);

// Head and body. With `to_head` the body is left out, and only its length is
// given.
std::string LocalAnswerText(const LocalAnswer& answer, bool to_head,
                            absl::string_view request_id, bool keep_alive);

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_HEAD_H_
