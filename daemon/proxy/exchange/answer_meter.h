#ifndef DAEMON_PROXY_EXCHANGE_ANSWER_METER_H_
#define DAEMON_PROXY_EXCHANGE_ANSWER_METER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace fineserve::proxy {

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
};

// Watches an answer's body as it passes, in pieces cut anywhere, and keeps only
// its tail. For server-sent events it counts those that bring tokens and knows
// whether the stream is between two events; in any answer it finds the usage
// near the end.
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

  // At the beginning, or right after a blank line: an event can be appended.
  bool between_events() const;

  // The last "usage" object, if it is in the tail. A stream has it in its last
  // event if the client asked for it.
  absl::optional<Usage> usage() const;

 private:
  // OpenAI's usage object with its details takes some 300 bytes, and in a plain
  // answer vLLM puts some 100 bytes of other fields behind it.
  static constexpr size_t kTailBytes = 1024;

  // The beginning of a line, of which the rest is not needed.
  static constexpr size_t kLineBytes = 64;

  void CountEvents(absl::string_view piece);
  void EndLine();
  void KeepTail(absl::string_view piece);
  absl::string_view tail() const { return {tail_.data(), tail_bytes_}; }

  uint32_t token_events_ = 0;
  // True if the present event can bring tokens, by its name, and has not been
  // counted.
  bool expects_token_ = true;
  bool has_error_ = false;
  std::array<char, kLineBytes> line_;  // the present one
  size_t line_bytes_ = 0;
  std::array<char, kTailBytes> tail_;
  size_t tail_bytes_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_EXCHANGE_ANSWER_METER_H_
