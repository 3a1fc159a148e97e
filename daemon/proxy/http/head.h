#ifndef DAEMON_PROXY_HTTP_HEAD_H_
#define DAEMON_PROXY_HTTP_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/proxy/http/api_error.h"
#include "daemon/proxy/http/request_parser.h"
#include "daemon/proxy/http/response_parser.h"

namespace fineserve::proxy {

// How the end of an answer's body is told to the client.
enum class Framing { kNoBody, kLength, kChunks, kEndOfConnection };

// How to frame the engine's answer for this client: its length if the engine
// said one, else chunks, which HTTP/1.0 does not have.
Framing FramingFor(const RequestParser& request, const ResponseParser& answer);

// Whether a field concerns one connection only and is not forwarded (RFC 9110,
// 7.6.1); `connection` is the value of the message's Connection field, which
// may name more of them.
bool IsHopByHop(absl::string_view name, absl::string_view connection);

// What a request needs besides its own fields on its way to an engine.
struct Forwarding {
  absl::string_view authority;  // the engine's, "host:port"
  absl::string_view request_id;
  size_t body_bytes = 0;
  bool drop_authorization = false;  // it was a key of ours
  absl::string_view target = {};    // empty: the client's
};

// Start line and fields, ready to be sent, as far as the blank line.
std::string RequestHead(const RequestParser& request, const Forwarding& how);
std::string AnswerHead(const ResponseParser& answer, Framing framing,
                       absl::string_view request_id, bool keep_alive);

// An answer of the proxy's own.
struct LocalAnswer {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string fields;  // more of them, each with its CRLF
};

LocalAnswer ErrorAnswer(const ApiError& error);

// Head and body. `to_head`: without the body, that is, with its length only.
std::string LocalAnswerText(const LocalAnswer& answer, bool to_head,
                            absl::string_view request_id, bool keep_alive);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_HTTP_HEAD_H_
