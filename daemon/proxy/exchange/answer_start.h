#ifndef DAEMON_PROXY_EXCHANGE_ANSWER_START_H_
#define DAEMON_PROXY_EXCHANGE_ANSWER_START_H_

#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// True if an event's data, or its beginning, is an error: {"error":…} or
// {"type":"error",…}.
bool IsErrorData(absl::string_view data);

// Whether an engine has begun to answer, from its answer's head and from its
// body in pieces cut anywhere. vLLM sends the head of a stream, and the first
// two events of /v1/responses, before its scheduler has seen the request; only
// behind them comes a sign of the engine itself, or its error (read in vLLM
// 0.33.0 and SGLang 0.5.23):
//
//   status 500 or more     an error; but 501 is said of the request
//   comment, ping, response.created, .queued, .in_progress, data without a
//     value                nothing yet
//   event: error, or data that is {"error":…} or {"type":"error",…}    an error
//   any other data         its own, as is any other body's first byte
class AnswerStart {
 public:
  // `streams`: the body is server-sent events.
  AnswerStart(unsigned status, bool streams);

  void Feed(absl::string_view piece);

  // Nothing that follows changes it.
  bool is_known() const { return own_ || error_; }
  absl::optional<EngineError> error() const { return error_; }

 private:
  enum class Name { kPlain, kEarly, kError };  // of an event

  // The rest of a line does not matter.
  static constexpr size_t kLineBytes = 64;

  void EndLine(absl::string_view line);
  void EndData(absl::string_view data);
  static Name NameOf(absl::string_view event);

  const bool streams_;
  bool own_ = false;
  absl::optional<EngineError> error_;
  Name name_ = Name::kPlain;  // of the present event
  std::array<char, kLineBytes> line_;
  size_t line_bytes_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_EXCHANGE_ANSWER_START_H_
