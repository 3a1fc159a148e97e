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
#include "daemon/clock/clock.h"
#include "daemon/config/address.h"
#include "daemon/log/log.h"
#include "daemon/proxy/http/socket_io.h"
#include "daemon/proxy/trace/otlp_json.h"

namespace fineserve::proxy {
namespace {

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

// Statuses after which the same bytes may be sent again (OTLP, "Retryable
// Response Codes").
bool MayTryAgain(unsigned status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

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
