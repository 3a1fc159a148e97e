#include "daemon/base/http/api_error.h"

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

ApiError Make(unsigned status, absl::string_view type, absl::string_view code,
              absl::string_view message) {
  ApiError error;
  error.status = status;
  error.type = std::string(type);
  error.code = std::string(code);
  error.message = std::string(message);
  return error;
}

// From docs.anthropic.com, "Errors". Anthropic reports an overload as 529,
// which other clients do not know.
absl::string_view AnthropicType(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError ClientError(unsigned status, absl::string_view code,
                     absl::string_view message) {
  return Make(status, "invalid_request_error", code, message);
}

ApiError RateLimitError(absl::string_view code, absl::string_view message) {
  return Make(429, "rate_limit_error", code, message);
}

ApiError ServerError(unsigned status, absl::string_view code,
                     absl::string_view message) {
  return Make(status, "server_error", code, message);
}

std::string JsonQuote(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", absl::string_view(&c, 1));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&out, "\\u", absl::Hex(byte, absl::kZeroPad4));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

std::string ErrorBody(const ApiError& error, bool anthropic) {
  if (anthropic) {
    return absl::StrCat("{\"type\":\"error\",\"error\":{\"type\":\"",
                        AnthropicType(error.status),
                        "\",\"message\":", JsonQuote(error.message), "}}");
  }
  std::string body =
      absl::StrCat("{\"error\":{\"message\":", JsonQuote(error.message),
                   ",\"type\":", JsonQuote(error.type),
                   ",\"param\":null,\"code\":", JsonQuote(error.code));
  if (error.predicted_ttft_ms != 0) {
    absl::StrAppend(&body, ",\"predicted_ttft_ms\":", error.predicted_ttft_ms);
  }
  return body + "}}";
}

std::string ErrorEvent(const ApiError& error, bool between_events,
                       bool anthropic) {
  const std::string event =
      anthropic
          ? absl::StrCat("event: error\ndata: ", ErrorBody(error, true), "\n\n")
          : absl::StrCat("data: ", ErrorBody(error), "\n\n");
  return absl::StrCat(between_events ? "" : "\n\n", event);
}

std::string JsonQuotePrintable(absl::string_view text) {
  std::string shown(text);
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return JsonQuote(shown);
}

}  // namespace fineserve::proxy
