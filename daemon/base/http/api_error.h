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
// The load is too high for this request: 429.
ApiError RateLimitError(absl::string_view code, absl::string_view message);
// The proxy's fault or the engine's: 501 to 504, 508.
ApiError ServerError(unsigned status, absl::string_view code,
                     absl::string_view message);

// {"error":{"message","type","param":null,"code"}}, and predicted_ttft_ms
// where it is known. For Anthropic's clients
// {"type":"error","error":{"type","message"}}, with their types.
std::string ErrorBody(const ApiError& error, bool anthropic = false);

// The same as the last event of a stream. Unless the stream is
// `between_events`, the event that was cut off is ended first. Clients of
// Anthropic's API look at an event's name.
std::string ErrorEvent(const ApiError& error, bool between_events,
                       bool anthropic);

// `text` as a JSON string. Bytes that are not ASCII are copied; they must be
// UTF-8.
std::string JsonQuote(absl::string_view text);
// The same for bytes of a client, which may be anything: each that is not
// printable ASCII becomes a question mark.
std::string JsonQuotePrintable(absl::string_view text);

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_API_ERROR_H_
