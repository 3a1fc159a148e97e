#include "daemon/base/http/response_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>

#include "daemon/base/http/beast_view.h"

namespace fineserve::proxy {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// A Beast body that records where its bytes are instead of copying them.
struct PiecesBody {
  using value_type = std::vector<absl::string_view>*;

  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(http::header<kIsRequest, Fields>&, value_type& pieces)
        : pieces_(pieces) {}

    void init(const boost::optional<uint64_t>&, error_code& e) { e = {}; }

    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& e) {
      e = {};
      size_t n = 0;
      for (const auto buffer : boost::beast::buffers_range_ref(buffers)) {
        pieces_->emplace_back(static_cast<const char*>(buffer.data()),
                              buffer.size());
        n += buffer.size();
      }
      return n;
    }

    void finish(error_code& e) { e = {}; }

   private:
    value_type& pieces_;
  };
};

}  // namespace

struct ResponseParser::Beast {
  http::response_parser<PiecesBody> parser;
};

ResponseParser::ResponseParser(size_t header_bytes, bool to_head)
    : beast_(new Beast) {
  beast_->parser.eager(true);
  beast_->parser.skip(to_head);
  beast_->parser.header_limit(static_cast<uint32_t>(header_bytes));
  beast_->parser.body_limit(boost::none);  // it passes through
}

ResponseParser::~ResponseParser() = default;

size_t ResponseParser::Feed(absl::string_view bytes,
                            std::vector<absl::string_view>* pieces) {
  beast_->parser.get().body() = pieces;
  size_t taken = 0;
  error_code e;
  while (taken < bytes.size() && !e && !done()) {
    const absl::string_view rest = bytes.substr(taken);
    taken += beast_->parser.put(
        boost::asio::const_buffer(rest.data(), rest.size()), e);
  }
  // Beast accepts any three digits. A status below 100 has no meaning, so it
  // does not even show whether a body follows.
  const bool nonsense = header_done() && status() < 100;
  if ((e && e != http::error::need_more) || nonsense) broken_ = true;
  return taken;
}

void ResponseParser::FeedEnd() {
  error_code e;
  if (!done() && beast_->parser.got_some()) beast_->parser.put_eof(e);
  if (e || !done()) broken_ = true;
}

bool ResponseParser::header_done() const {
  return beast_->parser.is_header_done();
}

bool ResponseParser::done() const { return beast_->parser.is_done(); }

unsigned ResponseParser::status() const {
  return beast_->parser.get().result_int();
}

absl::string_view ResponseParser::reason() const {
  return View(beast_->parser.get().reason());
}

bool ResponseParser::keep_alive() const { return beast_->parser.keep_alive(); }

absl::optional<uint64_t> ResponseParser::content_length() const {
  const boost::optional<uint64_t> n = beast_->parser.content_length();
  return n ? absl::optional<uint64_t>(*n) : absl::nullopt;
}

absl::string_view ResponseParser::Field(absl::string_view name) const {
  return FieldOf(beast_->parser.get().base(), name);
}

void ResponseParser::ForEachField(const FieldVisitor& visit) const {
  for (const auto& field : beast_->parser.get().base()) {
    visit(View(field.name_string()), View(field.value()));
  }
}

}  // namespace fineserve::proxy
