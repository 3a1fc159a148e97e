#include "daemon/base/http/request_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "daemon/base/http/beast_view.h"

namespace fineserve::proxy {
namespace {

namespace http = boost::beast::http;

// A body in chunks that exceeds this size is expected to reach any size.
constexpr size_t kGrowsBytes = 256 << 10;

ApiError TooMuchAtOnce() {
  ApiError error = ServerError(
      503, "bodies_too_large",
      "this proxy holds as much of large requests as it may; try again");
  error.retry_after_ms = 1000;
  return error;
}

}  // namespace

struct RequestParser::Beast {
  http::request_parser<http::string_body> parser;
  size_t header_bytes;
  uint64_t body_bytes;
  bool checked = false;  // HeaderError was asked
  // Set for a request in chunks, because Beast adds the fields behind the body
  // to those of the header.
  absl::optional<http::request_header<>> header;

  const http::request_header<>& Header() const {
    return header ? *header : parser.get().base();
  }

  ApiError ErrorOf(boost::system::error_code e) const {
    if (e == http::error::header_limit || e == http::error::buffer_overflow) {
      return ClientError(431, "header_too_large",
                         absl::StrCat("the request's header is longer than ",
                                      header_bytes, " bytes"));
    }
    if (e == http::error::body_limit) {
      return ClientError(413, "body_too_large",
                         absl::StrCat("the request's body is longer than ",
                                      body_bytes, " bytes"));
    }
    return ClientError(400, "bad_http",
                       absl::StrCat("bad HTTP request: ", e.message()));
  }
};

RequestParser::RequestParser(size_t header_bytes, uint64_t body_bytes,
                             BodyBudget* budget)
    : beast_(new Beast{{}, header_bytes, body_bytes, false, absl::nullopt}),
      budget_(budget) {
  beast_->parser.header_limit(static_cast<uint32_t>(header_bytes));
  beast_->parser.body_limit(body_bytes);
}

RequestParser::~RequestParser() { TakeBody(); }

size_t RequestParser::Feed(absl::string_view bytes) {
  size_t taken = 0;
  // Skips empty lines before the request (RFC 9112, 2.2), which may arrive in
  // pieces.
  while (!beast_->parser.got_some() &&
         absl::StartsWith(bytes.substr(taken), "\r\n")) {
    taken += 2;
  }
  if (!beast_->parser.got_some() && bytes.substr(taken) == "\r") return taken;
  boost::system::error_code e;
  // Loops because a put stops after the header and may stop after a chunk.
  while (taken < bytes.size() && !e && !done() && !error_) {
    const absl::string_view rest = bytes.substr(taken);
    taken += beast_->parser.put(
        boost::asio::const_buffer(rest.data(), rest.size()), e);
    if (header_done() && !std::exchange(beast_->checked, true)) {
      TakeHeader();
      // A short body may have come with the header.
      if (declared_bytes_ <= BodyBudget::kFreeBytes) ReserveBody();
    }
  }
  if (e && e != http::error::need_more) error_ = beast_->ErrorOf(e);
  if (!Charge()) error_ = TooMuchAtOnce();
  if (!error_ && header_done() && !done()) ReserveBody();
  return taken;
}

bool RequestParser::Charge() {
  const uint64_t bytes = std::max<uint64_t>(body()->size(), declared_bytes_);
  if (budget_ != nullptr && !budget_->Change(charged_bytes_, bytes)) {
    return false;
  }
  charged_bytes_ = bytes;
  return true;
}

std::string RequestParser::TakeBody() {
  std::string taken = std::exchange(*body(), {});
  declared_bytes_ = 0;
  Charge();
  return taken;
}

// Reserves the body's memory, because a large body would otherwise be copied as
// it grows, and once more for its reader. Reserved bytes that are never written
// take no memory.
void RequestParser::ReserveBody() {
  const bool grows = beast_->parser.chunked() && body()->size() > kGrowsBytes;
  const uint64_t bytes = grows ? beast_->body_bytes : declared_bytes_;
  if (bytes > body()->capacity()) body()->reserve(bytes + kSlackBytes);
}

void RequestParser::TakeHeader() {
  error_ = HeaderError();
  if (!error_) declared_bytes_ = beast_->parser.content_length().value_or(0);
  if (beast_->parser.chunked()) beast_->header = beast_->parser.get().base();
  beast_->parser.eager(true);
}

void RequestParser::LimitBody(uint64_t bytes) {
  beast_->body_bytes = bytes;
  beast_->parser.body_limit(bytes);
  const auto length = beast_->parser.content_length();
  if (length && *length > bytes) {
    error_ = beast_->ErrorOf(http::error::body_limit);
  }
}

// Returns an error for what Beast lets pass: no Host field or two (RFC 9112,
// 3.2), and a transfer coding that is not chunked (6.1), after which no reader
// would know where the body ends.
absl::optional<ApiError> RequestParser::HeaderError() const {
  const auto& fields = beast_->parser.get();
  const size_t hosts = fields.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && http_1_1())) {
    return ClientError(400, "bad_host",
                       "an HTTP/1.1 request needs one Host field");
  }
  const size_t codings = fields.count(http::field::transfer_encoding);
  const absl::string_view coding = Field("transfer-encoding");
  if (codings == 0 ||
      (codings == 1 && absl::EqualsIgnoreCase(coding, "chunked"))) {
    return absl::nullopt;
  }
  return ServerError(501, "unsupported_encoding",
                     "the only supported Transfer-Encoding is chunked");
}

bool RequestParser::header_done() const {
  return beast_->parser.is_header_done();
}

bool RequestParser::done() const { return beast_->parser.is_done(); }

absl::string_view RequestParser::method() const {
  return View(beast_->Header().method_string());
}

// "http://host/path" comes from clients that take this for their proxy, and
// every server must take it (RFC 9112, 3.2.2).
absl::string_view RequestParser::target() const {
  const absl::string_view target = View(beast_->Header().target());
  const size_t scheme = target.find("://");
  if (target[0] == '/' || scheme == absl::string_view::npos) return target;
  const size_t path = target.find('/', scheme + 3);
  return path == absl::string_view::npos ? "/" : target.substr(path);
}

bool RequestParser::http_1_1() const {
  return beast_->parser.get().version() >= 11;
}

bool RequestParser::keep_alive() const { return beast_->parser.keep_alive(); }

absl::string_view RequestParser::Field(absl::string_view name) const {
  return FieldOf(beast_->Header(), name);
}

void RequestParser::ForEachField(const FieldVisitor& visit) const {
  for (const auto& field : beast_->Header()) {
    visit(View(field.name_string()), View(field.value()));
  }
}

std::string* RequestParser::body() { return &beast_->parser.get().body(); }

}  // namespace fineserve::proxy
