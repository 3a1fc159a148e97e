#include "tools/openai/target.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tools/openai/error_tuple.h"

namespace fineserve::openai {

absl::StatusOr<Target> ParseUrl(const std::string& url) {
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url, "\" does not begin with http://"));
  }
  absl::ConsumeSuffix(&rest, "/");
  const size_t colon = rest.rfind(':');
  const absl::string_view host = rest.substr(0, colon);
  const absl::string_view port =
      colon == rest.npos ? "80" : rest.substr(colon + 1);
  uint32_t number = 0;
  if (host.empty() || rest.find('/') != rest.npos ||
      !absl::SimpleAtoi(port, &number) || number == 0 || number > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url, "\" is not http://HOST:PORT"));
  }
  return Target{std::string(host), std::string(port), "/v1/completions", ""};
}

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr size_t kMostBytes = 8 << 20;

http::request<http::empty_body> MakeRequest(const Target& target,
                                            const std::string& path) {
  http::request<http::empty_body> request(http::verb::get, path, 11);
  request.set(http::field::host, target.host + ":" + target.port);
  request.set(http::field::user_agent, "fineserve");
  if (!target.key.empty()) {
    request.set(http::field::authorization, "Bearer " + target.key);
  }
  return request;
}

asio::awaitable<boost::system::error_code> Get(
    const Target& target, const std::string& path,
    std::chrono::milliseconds timeout, asio::io_context* context, Page* page) {
  asio::ip::tcp::resolver resolver(*context);
  const auto [unresolved, found] =
      co_await resolver.async_resolve(target.host, target.port, kTuple);
  if (unresolved) co_return unresolved;
  beast::tcp_stream stream(*context);
  stream.expires_after(timeout);
  const auto [unconnected, at] = co_await stream.async_connect(found, kTuple);
  if (unconnected) co_return unconnected;
  const auto request = MakeRequest(target, path);
  const auto [unsent, sent] =
      co_await http::async_write(stream, request, kTuple);
  if (unsent) co_return unsent;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMostBytes);
  beast::flat_buffer buffer;
  const auto [unread, read] =
      co_await http::async_read(stream, buffer, parser, kTuple);
  page->status = parser.get().result_int();
  page->body = std::move(parser.get().body());
  co_return unread;
}

}  // namespace

absl::StatusOr<Page> GetPage(const Target& target, const std::string& path,
                             std::chrono::milliseconds timeout) {
  asio::io_context context(1);
  Page page;
  boost::system::error_code error;
  asio::co_spawn(context, Get(target, path, timeout, &context, &page),
                 [&error](const std::exception_ptr&,
                          boost::system::error_code e) { error = e; });
  context.run();
  if (!error) return page;
  return absl::UnavailableError(error.message());
}

}  // namespace fineserve::openai
