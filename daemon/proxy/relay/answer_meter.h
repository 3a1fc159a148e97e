#ifndef DAEMON_PROXY_RELAY_ANSWER_METER_H_
#define DAEMON_PROXY_RELAY_ANSWER_METER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// True if `data`, which may be only the beginning of an event's data, is an
// error: {"error":…} or {"type":"error",…}.
bool IsErrorData(absl::string_view data);

// Splits pieces, which may be cut anywhere, into lines of server-sent events.
// Keeps only the beginning of each line, without blanks at its end; the rest
// does not matter.
class EventLines {
 public:
  // Calls `take` with each line that ends in the piece, until it returns false.
  template <typename Take>
  void Feed(absl::string_view piece, Take take) {
    for (;;) {
      const size_t end = piece.find('\n');
      const size_t kept = std::min({end, piece.size(), kMost - bytes_});
      std::copy_n(piece.data(), kept, line_.data() + bytes_);
      bytes_ += kept;
      if (end == absl::string_view::npos) return;
      if (!take(absl::StripTrailingAsciiWhitespace(
              {line_.data(), std::exchange(bytes_, 0)}))) {
        return;
      }
      piece.remove_prefix(end + 1);
    }
  }

 private:
  static constexpr size_t kMost = 64;

  std::array<char, kMost> line_;  // the present one
  size_t bytes_ = 0;
};

// Tells whether an engine has begun to answer, from its answer's head and from
// its body in pieces cut anywhere. vLLM sends the head of a stream, and the
// first two events of /v1/responses, before its scheduler has seen the request;
// a sign of the engine itself, or its error, comes only after them (read in
// vLLM 0.33.0 and SGLang 0.5.23):
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

  // True if no later part can change the result.
  bool is_known() const { return own_ || error_; }
  absl::optional<EngineError> error() const { return error_; }

 private:
  enum class Name { kPlain, kEarly, kError };  // of an event

  void EndLine(absl::string_view line);
  void EndData(absl::string_view data);
  static Name NameOf(absl::string_view event);

  const bool streams_;
  bool own_ = false;
  absl::optional<EngineError> error_;
  Name name_ = Name::kPlain;  // of the present event
  EventLines lines_;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
};

// Watches an answer's body as it passes, in pieces cut anywhere, and keeps only
// its last few bytes and what follows its last "usage". For server-sent events
// it counts those that bring tokens and knows whether the stream is between two
// events; in any answer it finds the usage, wherever that is: vLLM puts a
// prompt's token ids behind it if it is asked for them.
//
// These events bring tokens (read in vLLM 0.33.0's source):
//
//   completions, chats, transcriptions,  unnamed: all but errors and "[DONE]"
//     tokens out
//   responses   response.output_text.delta and the other "….delta"; not
//               response.created, in_progress (sent before the engine has the
//               request), output_item.added, completed
//   messages    content_block_delta; not message_start, message_delta (usage)
//   Cohere's    content-delta and the other "…-delta"
//   any         an error is none: named so, or data that is one (IsErrorData)
class AnswerMeter {
 public:
  void Feed(absl::string_view piece);

  // Events that bring tokens.
  uint32_t token_events() const { return token_events_; }

  // One of the events was an error.
  bool has_error() const { return has_error_; }

  // True at the beginning and right after a blank line, where an event can be
  // appended.
  bool between_events() const;

  // The last "usage" object. A stream has it in its last event if the client
  // asked for it.
  absl::optional<Usage> usage() const;

 private:
  // OpenAI's usage object with its details takes some 300 bytes.
  static constexpr size_t kUsageBytes = 512;
  // Enough for the name of the usage object, and for the end of an event.
  static constexpr size_t kTailBytes = 16;

  void CountEvents(absl::string_view piece);
  void EndLine(absl::string_view line);
  void KeepTail(absl::string_view piece);
  size_t UsageIn(absl::string_view piece) const;
  void KeepUsage(absl::string_view piece);
  absl::string_view tail() const { return {tail_.data(), tail_bytes_}; }

  uint32_t token_events_ = 0;
  // True if the present event, by its name, can bring tokens, and has not been
  // counted.
  bool expects_token_ = true;
  bool has_error_ = false;
  EventLines lines_;
  std::array<char, kTailBytes> tail_;
  size_t tail_bytes_ = 0;
  bool has_usage_ = false;
  std::array<char, kUsageBytes> usage_;  // behind its name
  size_t usage_bytes_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_ANSWER_METER_H_
