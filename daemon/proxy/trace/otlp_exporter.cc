#include "daemon/proxy/trace/otlp_exporter.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/base/clock/clock.h"
#include "daemon/base/http/api_error.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/base/log/log.h"
#include "daemon/fleet/config/address.h"

namespace fineserve::proxy {
namespace {

// Values of a span's kind (opentelemetry/proto/trace/v1/trace.proto).
enum class Kind { kInternal = 1, kServer = 2, kClient = 3 };
constexpr int kErrorCode = 2;

// A list of attributes, without those that are empty or 0.
class Attributes {
 public:
  Attributes& Text(absl::string_view key, absl::string_view value) {
    if (!value.empty()) {
      Add(key, absl::StrCat("\"stringValue\":", JsonQuotePrintable(value)));
    }
    return *this;
  }
  // Writes the number as a string, as this JSON requires for 64-bit integers.
  Attributes& Number(absl::string_view key, uint64_t value) {
    if (value != 0) Add(key, absl::StrCat("\"intValue\":\"", value, "\""));
    return *this;
  }
  std::string Array() const { return absl::StrCat("[", text_, "]"); }

 private:
  void Add(absl::string_view key, const std::string& value) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",", "{\"key\":\"", key,
                    "\",\"value\":{", value, "}}");
  }
  std::string text_;
};

struct Span {
  std::string name, id, parent_id;
  Kind kind = Kind::kInternal;
  uint64_t begin_ns = 0, end_ns = 0;
  Attributes attributes;
  bool failed = false;
};

class Spans {
 public:
  void Add(const Life& life, const Span& span) {
    const auto unix_ns = [&](uint64_t ns) {
      return life.arrived_unix_ns +
             (std::max(ns, life.arrived_ns) - life.arrived_ns);
    };
    absl::StrAppend(&text_, text_.empty() ? "" : ",", "{\"traceId\":\"",
                    life.trace_id, "\",\"spanId\":\"", span.id, "\"");
    if (!span.parent_id.empty()) {
      absl::StrAppend(&text_, ",\"parentSpanId\":\"", span.parent_id, "\"");
    }
    absl::StrAppend(&text_, ",\"name\":", JsonQuotePrintable(span.name),
                    ",\"kind\":", static_cast<int>(span.kind),
                    ",\"startTimeUnixNano\":\"", unix_ns(span.begin_ns),
                    "\",\"endTimeUnixNano\":\"", unix_ns(span.end_ns),
                    "\",\"attributes\":", span.attributes.Array());
    if (span.failed) {
      absl::StrAppend(&text_, ",\"status\":{\"code\":", kErrorCode, "}");
    }
    absl::StrAppend(&text_, "}");
    ++count_;
  }
  const std::string& text() const { return text_; }
  size_t count() const { return count_; }

 private:
  std::string text_;
  size_t count_ = 0;
};

void AddRequest(const Life& life, Spans* spans) {
  Span span;
  span.name = absl::StrCat(life.method, " ", life.path);
  span.id = life.span_id;
  span.parent_id = life.parent_span_id;
  span.kind = Kind::kServer;
  span.begin_ns = life.arrived_ns;
  span.end_ns = life.ended_ns;
  span.attributes.Text("http.request.method", life.method)
      .Text("url.path", life.path)
      .Number("http.response.status_code", life.status)
      .Text("error.type", life.error)
      .Text("gen_ai.request.model", life.model)
      .Number("gen_ai.usage.input_tokens", life.tokens_in)
      .Number("gen_ai.usage.output_tokens", life.tokens_out)
      .Text("fineserve.request_id", life.id)
      .Text("fineserve.ended", Word(life.ending));
  span.failed = life.status >= 500 || life.ending == Ending::kEngineDied;
  spans->Add(life, span);
}

void AddDecision(const Life& life, const LifeAttempt& attempt,
                 RandomHex* random, Spans* spans) {
  if (attempt.asked_ns == 0) return;
  Span deciding;
  deciding.name = "deciding";
  deciding.id = random->Next(8);
  deciding.parent_id = life.span_id;
  deciding.begin_ns = attempt.asked_ns;
  deciding.end_ns =
      attempt.decided_ns != 0 ? attempt.decided_ns : life.ended_ns;
  deciding.attributes.Text("fineserve.decided_by", Word(attempt.decided_by))
      .Text("fineserve.engine", attempt.engine)
      .Text("fineserve.gpu", attempt.gpu);
  spans->Add(life, deciding);
  const uint64_t waited_ns = attempt.waited_us * 1000;
  const uint64_t took_ns = deciding.end_ns - deciding.begin_ns;
  if (attempt.waited_for == WaitedFor::kNothing) return;
  Span waiting;
  waiting.name = "waiting";
  waiting.id = random->Next(8);
  waiting.parent_id = deciding.id;
  // The daemon says how long the request waited, and its verdict came right
  // after.
  waiting.begin_ns = deciding.end_ns -
                     (waited_ns == 0 ? took_ns : std::min(waited_ns, took_ns));
  waiting.end_ns = deciding.end_ns;
  waiting.attributes.Text("fineserve.waited_for", Word(attempt.waited_for));
  spans->Add(life, waiting);
}

void AddRelay(const Life& life, const LifeAttempt& attempt, Spans* spans) {
  if (attempt.sent_ns == 0 || attempt.span_id.empty()) return;
  Span span;
  span.name = "relaying";
  span.id = attempt.span_id;
  span.parent_id = life.span_id;
  span.kind = Kind::kClient;
  span.begin_ns = attempt.sent_ns;
  span.end_ns = attempt.ended_ns != 0 ? attempt.ended_ns : life.ended_ns;
  span.attributes.Text("fineserve.engine", attempt.engine)
      .Text("fineserve.gpu", attempt.gpu);
  span.failed = attempt.failed;
  spans->Add(life, span);
}

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr uint64_t kWarnEveryNs = 60'000'000'000;
constexpr size_t kMostAnswerBytes = 64 << 10;

http::request<http::string_body> MakePost(const OtlpEndpoint& to,
                                          const std::string& body) {
  http::request<http::string_body> post(http::verb::post, to.target, 11);
  post.set(http::field::host, absl::StrCat(to.host, ":", to.port));
  post.set(http::field::user_agent, "fineserve-proxy");
  post.set(http::field::content_type, "application/json");
  post.set(http::field::connection, "close");
  post.body() = body;
  post.prepare_payload();
  return post;
}

asio::awaitable<error_code> PostOnce(const OtlpEndpoint& to,
                                     const std::string& body,
                                     std::chrono::milliseconds timeout,
                                     asio::io_context* context,
                                     unsigned* status) {
  asio::ip::tcp::resolver resolver(*context);
  const auto [unresolved, found] =
      co_await resolver.async_resolve(to.host, std::to_string(to.port), kTuple);
  if (unresolved) co_return unresolved;
  beast::tcp_stream stream(*context);
  stream.expires_after(timeout);
  const auto [unconnected, at] = co_await stream.async_connect(found, kTuple);
  if (unconnected) co_return unconnected;
  const auto post = MakePost(to, body);
  const auto [unsent, sent] = co_await http::async_write(stream, post, kTuple);
  if (unsent) co_return unsent;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMostAnswerBytes);
  beast::flat_buffer buffer;
  const auto [unread, read] =
      co_await http::async_read(stream, buffer, parser, kTuple);
  *status = parser.get().result_int();
  co_return unread;
}

// True for statuses after which the same bytes may be sent again (OTLP,
// "Retryable Response Codes").
bool MayTryAgain(unsigned status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

OtlpBatch OtlpJson(const std::vector<std::shared_ptr<const Life>>& lives,
                   RandomHex* random) {
  Spans spans;
  for (const auto& life : lives) {
    AddRequest(*life, &spans);
    for (size_t i = 0; i < life->attempt_count; ++i) {
      AddDecision(*life, life->attempts[i], random, &spans);
      AddRelay(*life, life->attempts[i], &spans);
    }
  }
  const std::string resource =
      Attributes().Text("service.name", "fineserve-proxy").Array();
  return {absl::StrCat(
              "{\"resourceSpans\":[{\"resource\":{\"attributes\":", resource,
              "},\"scopeSpans\":[{\"scope\":{\"name\":\"fineserve\"},"
              "\"spans\":[",
              spans.text(), "]}]}]}"),
          spans.count()};
}

absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& url) {
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url,
                     "\" is not http://HOST[:PORT][/PATH]; for https, run a "
                     "collector beside the proxy"));
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  const absl::string_view path = rest.substr(slash);
  std::string authority(rest.substr(0, slash));
  const size_t colon = authority.rfind(':');
  const bool has_port =
      colon != authority.npos && authority.find(']', colon) == authority.npos;
  if (!has_port) authority += ":4318";
  OtlpEndpoint to;
  const absl::Status s = config::SplitAddress(authority, &to.host, &to.port);
  if (!s.ok() || to.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url, "\": ", s.ok() ? "port 0" : s.message()));
  }
  to.target = path.empty() || path == "/" ? "/v1/traces" : std::string(path);
  return to;
}

OtlpExporter::OtlpExporter(OtlpEndpoint to, Patience patience,
                           size_t most_queued)
    : to_(std::move(to)),
      patience_(patience),
      queue_(most_queued),
      thread_([this] { Run(); }) {}

OtlpExporter::~OtlpExporter() {
  queue_.Close();
  thread_.join();
}

OtlpExporter::Counts OtlpExporter::counts() const {
  return {spans_, spans_given_up_, queue_.dropped(), failures_};
}

void OtlpExporter::Run() {
  for (;;) {
    const auto lives = queue_.Take(patience_.gather);
    if (lives.empty() && queue_.closed()) return;
    for (size_t i = 0; i < lives.size(); i += kBatch) {
      const auto first = lives.begin() + static_cast<ptrdiff_t>(i);
      const size_t n = std::min(kBatch, lives.size() - i);
      SendBatch({first, first + static_cast<ptrdiff_t>(n)});
    }
  }
}

void OtlpExporter::SendBatch(
    const std::vector<std::shared_ptr<const Life>>& batch) {
  const OtlpBatch otlp = OtlpJson(batch, &random_);
  std::chrono::milliseconds rest = patience_.retry;
  for (int i = 0; i < kTries; ++i) {
    bool again = false;
    if (Post(otlp.body, &again)) {
      spans_ += otlp.spans;
      return;
    }
    ++failures_;
    const bool is_last = !again || i + 1 == kTries;
    if (is_last || queue_.WaitForClose(rest)) break;
    rest *= 2;
  }
  spans_given_up_ += otlp.spans;
}

bool OtlpExporter::Post(const std::string& body, bool* again) {
  asio::io_context context(1);
  unsigned status = 0;
  error_code error;
  asio::co_spawn(
      context, PostOnce(to_, body, patience_.post, &context, &status),
      [&error](const std::exception_ptr&, error_code e) { error = e; });
  context.run();
  if (!error && status / 100 == 2) return true;
  *again = error || MayTryAgain(status);
  Warn(error ? error.message() : absl::StrCat("it answers ", status));
  return false;
}

void OtlpExporter::Warn(const std::string& why) {
  const uint64_t now = RealClock().NowNs();
  if (warned_ns_ != 0 && now - warned_ns_ < kWarnEveryNs) return;
  warned_ns_ = now;
  log::Warning("spans do not reach the collector {}:{}: {}", to_.host, to_.port,
               why);
}

}  // namespace fineserve::proxy
