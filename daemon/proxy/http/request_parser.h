#ifndef DAEMON_PROXY_HTTP_REQUEST_PARSER_H_
#define DAEMON_PROXY_HTTP_REQUEST_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/proxy/http/api_error.h"

namespace fineserve::proxy {

using FieldVisitor =
    std::function<void(absl::string_view name, absl::string_view value)>;

// One HTTP/1 request out of bytes as they come. No sockets. Views end with the
// parser. Confined to a thread.
class RequestParser {
 public:
  RequestParser(size_t header_bytes, uint64_t body_bytes);
  ~RequestParser();

  // How many of `bytes` belong to this request and were taken; the others are
  // to be offered again, with more behind them, unless done() or error().
  size_t Feed(absl::string_view bytes);

  bool header_done() const;
  bool done() const;
  // Set once the bytes are no request that we take: what to answer before the
  // connection is closed.
  const absl::optional<ApiError>& error() const { return error_; }

  // From here on: once header_done().
  absl::string_view method() const;
  absl::string_view target() const;
  bool http_1_1() const;
  bool keep_alive() const;
  // The first field of this name (any case); empty if there is none.
  absl::string_view Field(absl::string_view name) const;
  void ForEachField(const FieldVisitor& visit) const;
  // Complete once done().
  std::string* body();

 private:
  struct Beast;
  std::unique_ptr<Beast> beast_;
  absl::optional<ApiError> error_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_HTTP_REQUEST_PARSER_H_
