#include "bench/soak/http_post.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "tools/openai/error_tuple.h"

namespace fineserve::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

using openai::kTuple;

http::request<http::string_body> MakeRequest(HttpQuestion question) {
  http::request<http::string_body> request(http::verb::post, "/v1/completions",
                                           11);
  request.set(http::field::host, "127.0.0.1");
  request.set(http::field::content_type, "application/json");
  for (const auto& [name, value] : question.fields) request.set(name, value);
  request.keep_alive(false);
  request.body() = std::move(question.body);
  request.prepare_payload();
  return request;
}

void NoteError(error_code e, HttpAnswer* answer) {
  answer->error = e.message();
  answer->timed_out = e == beast::error::timeout;
}

}  // namespace

asio::awaitable<HttpAnswer> Post(HttpQuestion question,
                                 std::chrono::seconds limit) {
  HttpAnswer answer;
  beast::tcp_stream stream(co_await asio::this_coro::executor);
  stream.expires_after(limit);
  const asio::ip::tcp::endpoint at(asio::ip::address_v4::loopback(),
                                   question.port);
  const bool leaves = question.leaves;
  const auto request = MakeRequest(std::move(question));
  auto [unconnected] = co_await stream.async_connect(at, kTuple);
  error_code e = unconnected;
  if (!e) {
    const auto [unsent, bytes] =
        co_await http::async_write(stream, request, kTuple);
    e = unsent;
  }
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  while (!e && !parser.is_done()) {
    const auto [unread, bytes] =
        co_await http::async_read_some(stream, buffer, parser, kTuple);
    e = unread;
    if (leaves && parser.is_header_done()) break;
  }
  if (e) NoteError(e, &answer);
  if (!parser.is_header_done()) co_return answer;
  answer.status = parser.get().result_int();
  const auto field = [&](const char* name) {
    const auto value = parser.get()[name];
    return std::string(value.data(), value.size());
  };
  answer.reason = field("x-fineserve-reason");
  answer.retry_after = field("retry-after");
  answer.body = std::move(parser.get().body());
  co_return answer;
}

}  // namespace fineserve::bench
