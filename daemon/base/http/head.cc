#include "daemon/base/http/head.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/http/field_name.h"

namespace fineserve::proxy {
namespace {

constexpr absl::string_view kRequestId = "x-request-id";
constexpr absl::string_view kTraceparent = "traceparent";
constexpr absl::string_view kVia = "via";
constexpr absl::string_view kCors = "access-control-";
// Most heads fit.
constexpr size_t kHeadBytes = 1024;

absl::string_view ReasonOf(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 508:
      return "Loop Detected";
    default:
      return "Error";
  }
}

bool HasNoBody(unsigned status) {
  return status < 200 || status == 204 || status == 304;
}

void AppendField(std::string* head, absl::string_view name,
                 absl::string_view value) {
  head->append(name.data(), name.size()).append(": ");
  head->append(value.data(), value.size()).append("\r\n");
}

// Always writes the field. HTTP/1.1 connections persist and HTTP/1.0 ones do
// not, so naming the exceptions would be enough; but some old clients of either
// version rely on the field.
void AppendConnection(std::string* head, bool keep_alive) {
  AppendField(head, "connection", keep_alive ? "keep-alive" : "close");
}

// True for fields that the proxy writes itself or that are meant for it.
bool IsOurs(absl::string_view name, const Forwarding& how) {
  return IsSameName(name, "host") || IsSameName(name, kRequestId) ||
         IsSameName(name, "content-length") || IsSameName(name, "expect") ||
         (!how.traceparent.empty() && IsSameName(name, kTraceparent)) ||
         (how.drop_tracestate && IsSameName(name, "tracestate")) ||
         (how.drop_keys &&
          (IsSameName(name, "authorization") || IsSameName(name, "x-api-key")));
}

bool MayHaveBody(const RequestParser& request, const Forwarding& how) {
  return how.body_bytes > 0 || !request.Field("content-length").empty() ||
         request.method() == "POST" || request.method() == "PUT";
}

}  // namespace

Framing FramingFor(const RequestParser& request, const ResponseParser& answer) {
  if (request.method() == "HEAD" || HasNoBody(answer.status())) {
    return Framing::kNoBody;
  }
  if (answer.content_length()) return Framing::kLength;
  return request.http_1_1() ? Framing::kChunks : Framing::kEndOfConnection;
}

bool IsHopByHop(absl::string_view name, absl::string_view connection) {
  static constexpr absl::string_view kNames[] = {
      "connection", "keep-alive",        "proxy-authenticate",
      "te",         "transfer-encoding", "proxy-authorization",
      "trailer",    "upgrade",           "proxy-connection"};
  for (const absl::string_view known : kNames) {
    if (IsSameName(name, known)) return true;
  }
  if (connection.empty()) return false;
  for (absl::string_view token : absl::StrSplit(connection, ',')) {
    token = absl::StripAsciiWhitespace(token);
    if (IsSameName(name, token)) return true;
  }
  return false;
}

bool HasPassed(const RequestParser& request, absl::string_view via) {
  bool found = false;
  request.ForEachField([&](absl::string_view name, absl::string_view value) {
    found |= IsSameName(name, kVia) && absl::StrContains(value, via);
  });
  return found;
}

std::string RequestHead(const RequestParser& request, const Forwarding& how) {
  const absl::string_view target =
      how.target.empty() ? request.target() : how.target;
  std::string head;
  head.reserve(kHeadBytes);
  absl::StrAppend(&head, request.method(), " ", target, " HTTP/1.1\r\n");
  AppendField(&head, "host", how.authority);
  const absl::string_view connection = request.Field("connection");
  request.ForEachField([&](absl::string_view name, absl::string_view value) {
    if (IsHopByHop(name, connection) || IsOurs(name, how)) return;
    AppendField(&head, name, value);
  });
  AppendField(&head, kRequestId, how.request_id);
  if (!how.via.empty()) {
    // Appended behind the client's Via, so that the hops are in order.
    AppendField(&head, kVia, absl::StrCat("1.1 ", how.via));
  }
  if (!how.traceparent.empty()) {
    AppendField(&head, kTraceparent, how.traceparent);
  }
  if (MayHaveBody(request, how)) {
    absl::StrAppend(&head, "content-length: ", how.body_bytes, "\r\n");
  }
  absl::StrAppend(&head, "\r\n");
  return head;
}

std::string OutsideHead(const RequestParser& request, const Forwarding& how,
                        absl::string_view key) {
  std::string head = absl::StrCat("POST ", how.target, " HTTP/1.1\r\n");
  AppendField(&head, "host", how.authority);
  for (const absl::string_view name : {"accept", "content-type"}) {
    const absl::string_view value = request.Field(name);
    if (!value.empty()) AppendField(&head, name, value);
  }
  AppendField(&head, "user-agent", "fineserve-proxy");
  // Detects proxies that forward a request to each other in a loop.
  request.ForEachField([&](absl::string_view name, absl::string_view value) {
    if (!IsSameName(name, kVia)) return;
    for (const absl::string_view hop : absl::StrSplit(value, ',')) {
      if (absl::StrContains(hop, "fineserve-")) {
        AppendField(&head, kVia, absl::StripAsciiWhitespace(hop));
      }
    }
  });
  AppendField(&head, kVia, absl::StrCat("1.1 ", how.via));
  if (!key.empty()) {
    AppendField(&head, "authorization", absl::StrCat("Bearer ", key));
  }
  AppendField(&head, "content-length", absl::StrCat(how.body_bytes));
  return absl::StrCat(head, "\r\n");
}

std::string AnswerHead(const ResponseParser& answer, Framing framing,
                       absl::string_view request_id, bool keep_alive,
                       absl::string_view cors, AnswerFields fields,
                       absl::string_view model) {
  std::string head;
  head.reserve(kHeadBytes);
  absl::StrAppend(&head, "HTTP/1.1 ", answer.status(), " ", answer.reason(),
                  "\r\n");
  const absl::string_view connection = answer.Field("connection");
  answer.ForEachField([&](absl::string_view name, absl::string_view value) {
    if (IsHopByHop(name, connection)) return;
    if (IsSameName(name, kRequestId)) return;
    if (!cors.empty() && absl::StartsWithIgnoreCase(name, kCors)) return;
    if (fields == AnswerFields::kContent &&
        !absl::StartsWithIgnoreCase(name, "content-")) {
      return;
    }
    AppendField(&head, name, value);  // including content-length
  });
  absl::StrAppend(&head, cors);
  AppendField(&head, kRequestId, request_id);
  if (!model.empty()) AppendField(&head, "x-fineserve-model", model);
  if (framing == Framing::kChunks) {
    AppendField(&head, "transfer-encoding", "chunked");
  }
  AppendConnection(&head, keep_alive);
  absl::StrAppend(&head, "\r\n");
  return head;
}

LocalAnswer ErrorAnswer(const ApiError& error, bool anthropic) {
  LocalAnswer answer;
  answer.status = error.status;
  answer.body = ErrorBody(error, anthropic);
  AppendField(&answer.fields, "x-fineserve-reason", error.code);
  if (error.status == 401) {
    AppendField(&answer.fields, "www-authenticate", "Bearer");
  }
  if (error.status == 415) {
    AppendField(&answer.fields, "accept-encoding", "identity");
  }
  if (error.retry_after_ms != 0) {
    // The Retry-After field can hold only whole seconds.
    absl::StrAppend(&answer.fields,
                    "retry-after: ", (error.retry_after_ms + 999) / 1000,
                    "\r\nretry-after-ms: ", error.retry_after_ms, "\r\n");
  }
  if (error.predicted_ttft_ms != 0) {
    absl::StrAppend(&answer.fields,
                    "x-fineserve-predicted-ttft-ms: ", error.predicted_ttft_ms,
                    "\r\n");
  }
  return answer;
}

std::string LocalAnswerText(const LocalAnswer& answer, bool to_head,
                            absl::string_view request_id, bool keep_alive) {
  std::string text = absl::StrCat("HTTP/1.1 ", answer.status, " ",
                                  ReasonOf(answer.status), "\r\n");
  if (!HasNoBody(answer.status)) {
    AppendField(&text, "content-type", answer.content_type);
    absl::StrAppend(&text, "content-length: ", answer.body.size(), "\r\n");
  }
  absl::StrAppend(&text, answer.fields);
  if (!request_id.empty()) AppendField(&text, kRequestId, request_id);
  AppendConnection(&text, keep_alive);
  absl::StrAppend(&text, "\r\n");
  if (!to_head && !HasNoBody(answer.status))
    absl::StrAppend(&text, answer.body);
  return text;
}

}  // namespace fineserve::proxy
