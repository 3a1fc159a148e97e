#ifndef DAEMON_BASE_HTTP_RESPONSE_PARSER_H_
#define DAEMON_BASE_HTTP_RESPONSE_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/request_parser.h"

namespace fineserve::proxy {

// Parses one HTTP/1 response from bytes as they arrive. Its body is not copied:
// the pieces are views of the caller's bytes. Knows no sockets. Confined to a
// thread.
class ResponseParser {
 public:
  // `to_head`: the response answers HEAD, so it has no body whatever its header
  // says.
  ResponseParser(size_t header_bytes, bool to_head);
  ~ResponseParser();

  // Takes bytes that belong to this response, and returns their number. Unless
  // done(), the caller offers the remaining bytes again with more behind them.
  // Appends the parts that are body, without chunk framing, to `pieces`.
  size_t Feed(absl::string_view bytes, std::vector<absl::string_view>* pieces);
  // Reports the end of the connection, which completes a body without a length.
  void FeedEnd();

  bool header_done() const;
  bool done() const;
  bool broken() const { return broken_; }  // no HTTP response, or cut short

  // The following may be called once header_done().
  unsigned status() const;
  absl::string_view reason() const;
  bool keep_alive() const;
  absl::optional<uint64_t> content_length() const;
  absl::string_view Field(absl::string_view name) const;
  void ForEachField(const FieldVisitor& visit) const;

 private:
  struct Beast;
  std::unique_ptr<Beast> beast_;
  bool broken_ = false;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_RESPONSE_PARSER_H_
