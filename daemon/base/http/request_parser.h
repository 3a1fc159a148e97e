#ifndef DAEMON_BASE_HTTP_REQUEST_PARSER_H_
#define DAEMON_BASE_HTTP_REQUEST_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/api_error.h"

namespace fineserve::proxy {

// Limit on the bytes that the bodies of all requests may hold together. A body
// of known length counts from its header on, others as they grow. Only a body's
// bytes beyond kFreeBytes count, so that clients that send large bodies take
// nothing from those that send prompts. Confined to a thread.
class BodyBudget {
 public:
  static constexpr uint64_t kFreeBytes = 64 << 10;

  explicit BodyBudget(uint64_t bytes) : left_bytes_(bytes) {}

  // Records that a body grows or shrinks from `before` to `after` bytes.
  // Returns false and changes nothing if the budget is not enough.
  bool Change(uint64_t before, uint64_t after) {
    const uint64_t had = Counted(before), has = Counted(after);
    if (has > had && has - had > left_bytes_) return false;
    left_bytes_ = left_bytes_ + had - has;
    return true;
  }

  uint64_t left_bytes() const { return left_bytes_; }

 private:
  static uint64_t Counted(uint64_t bytes) {
    return bytes > kFreeBytes ? bytes - kFreeBytes : 0;
  }

  uint64_t left_bytes_;
};

using FieldVisitor =
    std::function<void(absl::string_view name, absl::string_view value)>;

// Parses one HTTP/1 request from bytes as they arrive. Knows no sockets. Its
// views are valid as long as the parser exists. Confined to a thread.
class RequestParser {
 public:
  // Room behind a body whose length is known, for a reader of JSON that reads
  // beyond its end.
  static constexpr size_t kSlackBytes = 64;

  // `budget` is shared with other bodies and must outlive this parser; null if
  // there is no limit.
  RequestParser(size_t header_bytes, uint64_t body_bytes,
                BodyBudget* budget = nullptr);
  ~RequestParser();

  // Takes the bytes that belong to this request, and returns their number.
  // Unless done() or error(), the caller offers the remaining bytes again with
  // more behind them.
  size_t Feed(absl::string_view bytes);

  bool header_done() const;
  bool done() const;
  // Set once the bytes turn out not to be a request that we accept: the answer
  // to send before the connection is closed.
  const absl::optional<ApiError>& error() const { return error_; }

  // The following may be called once header_done().
  absl::string_view method() const;
  // Returns path and query, even if the target is in absolute form.
  absl::string_view target() const;
  bool http_1_1() const;
  bool keep_alive() const;
  // Returns the first field of this name (any case); empty if there is none.
  // Fields behind a body in chunks are left out.
  absl::string_view Field(absl::string_view name) const;
  void ForEachField(const FieldVisitor& visit) const;
  // Complete once done().
  std::string* body();
  // Hands over the body once it is no longer needed, because freeing a large
  // one takes a millisecond or two.
  std::string TakeBody();
  // Limits the body to `bytes` from now on; may set error().
  void LimitBody(uint64_t bytes);

 private:
  void TakeHeader();
  absl::optional<ApiError> HeaderError() const;
  // Takes the body's present or announced size from the budget. The announced
  // size counts at once, since an accepted body is also read to its end.
  bool Charge();
  void ReserveBody();

  struct Beast;
  std::unique_ptr<Beast> beast_;
  absl::optional<ApiError> error_;
  BodyBudget* const budget_;
  uint64_t declared_bytes_ = 0;  // Content-Length; 0: not known
  uint64_t charged_bytes_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_REQUEST_PARSER_H_
