#include "tools/fsctl/requests/proxy_stream.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kPatience(5);
constexpr size_t kMostLineBytes = 1 << 20;

absl::Status NoProxy(const openai::Target& proxy, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(
      "no fineserve-proxy answers at ", proxy.host, ":", proxy.port, " (", why,
      "); give its admin address, which it prints at its start, as --admin "
      "HOST:PORT"));
}

// Returns the error for a server that answers with a status instead of a
// stream.
absl::Status Refused(unsigned status) {
  if (status == 404) {
    return absl::NotFoundError(
        "this fineserve-proxy keeps no requests; start it with "
        "--recent-requests N");
  }
  return absl::UnavailableError(
      absl::StrCat("the proxy answers with status ", status));
}

class LineSplitter {
 public:
  explicit LineSplitter(const OnLine& on_line) : on_line_(on_line) {}

  // False if a line is too long.
  bool Feed(const char* bytes, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      if (bytes[i] != '\n') {
        line_.push_back(bytes[i]);
        continue;
      }
      if (!line_.empty()) on_line_(line_);
      line_.clear();
    }
    return line_.size() <= kMostLineBytes;
  }

 private:
  const OnLine& on_line_;
  std::string line_;
};

absl::Status ReadLines(tcp::socket* socket, const OnLine& on_line,
                       const std::function<void()>& on_begin) {
  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  error_code e;
  http::read_header(*socket, buffer, parser, e);
  if (e) return absl::UnavailableError(e.message());
  if (parser.get().result_int() != 200) {
    return Refused(parser.get().result_int());
  }
  on_begin();
  LineSplitter lines(on_line);
  char bytes[16384];
  while (!parser.is_done()) {
    parser.get().body().data = bytes;
    parser.get().body().size = sizeof(bytes);
    http::read_some(*socket, buffer, parser, e);
    if (e == http::error::need_buffer) e = {};
    if (!lines.Feed(bytes, sizeof(bytes) - parser.get().body().size)) {
      return absl::UnavailableError("the proxy sent a line without an end");
    }
    if (e) return absl::UnavailableError("the proxy has gone");
  }
  return absl::UnavailableError("the proxy has ended");
}

}  // namespace

absl::StatusOr<openai::Target> ProxyAt(const std::string& address) {
  absl::StatusOr<openai::Target> target =
      openai::ParseUrl(absl::StrCat("http://", address));
  if (target.ok()) return target;
  return absl::InvalidArgumentError(
      absl::StrCat("--admin: \"", address,
                   "\" is no address; write it like 127.0.0.1:8001"));
}

std::string PercentEncoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.') {
      encoded.push_back(c);
    } else {
      absl::StrAppend(&encoded, "%", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return encoded;
}

absl::StatusOr<openai::Page> AskProxy(const openai::Target& proxy,
                                      const std::string& path) {
  auto page = openai::GetPage(proxy, path, kPatience);
  if (page.ok()) return page;
  return NoProxy(proxy, page.status().message());
}

absl::Status FollowProxy(const openai::Target& proxy, const std::string& path,
                         const std::function<void()>& on_begin,
                         const OnLine& on_line) {
  boost::asio::io_context context;
  error_code e;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(proxy.host, proxy.port, e);
  if (e) return NoProxy(proxy, e.message());
  tcp::socket socket(context);
  boost::asio::connect(socket, found, e);
  if (e) return NoProxy(proxy, e.message());
  http::request<http::empty_body> request(http::verb::get, path, 11);
  request.set(http::field::host, proxy.host + ":" + proxy.port);
  request.set(http::field::user_agent, "fsctl");
  http::write(socket, request, e);
  if (e) return NoProxy(proxy, e.message());
  return ReadLines(&socket, on_line, on_begin);
}

}  // namespace fineserve::fsctl
