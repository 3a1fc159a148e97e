#ifndef DAEMON_BASE_HTTP_API_ERROR_H_
#define DAEMON_BASE_HTTP_API_ERROR_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// An error as OpenAI's clients understand it.
struct ApiError {
  unsigned status = 500;  // HTTP
  std::string type;       // "invalid_request_error", "server_error", ...
  std::string code;       // one word for programs; also x-fineserve-reason
  std::string message;    // one line for people
  uint32_t retry_after_ms = 0;     // 0: no Retry-After
  uint32_t predicted_ttft_ms = 0;  // 0: unknown
};

// The client's fault: 400, 401, 404, 405, 413, 417, 431.
ApiError ClientError(unsigned status, absl::string_view code,
                     absl::string_view message);
// Returns the error for a request that the present load does not allow: 429.
ApiError RateLimitError(absl::string_view code, absl::string_view message);
// Returns an error that is the proxy's or the engine's fault: 501 to 504, 508.
ApiError ServerError(unsigned status, absl::string_view code,
                     absl::string_view message);

// Returns {"error":{"message","type","param":null,"code"}}, with
// predicted_ttft_ms if it is known. For Anthropic's clients:
// {"type":"error","error":{"type","message"}}, with Anthropic's error types.
std::string ErrorBody(const ApiError& error, bool anthropic = false);

// Returns the error as the last event of a stream. Unless the stream is
// `between_events`, first ends the event that was cut off. Gives the event a
// name for clients of Anthropic's API, which look at it.
std::string ErrorEvent(const ApiError& error, bool between_events,
                       bool anthropic);

// Returns `text` as a JSON string. Bytes that are not ASCII are copied; they
// must be UTF-8.
std::string JsonQuote(absl::string_view text);
// Returns arbitrary bytes from a client as a JSON string: each byte that is not
// printable ASCII becomes a question mark.
std::string JsonQuotePrintable(absl::string_view text);

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_API_ERROR_H_
