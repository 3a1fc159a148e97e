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

  // At the beginning, or right after a blank line: an event can be appended.
  bool between_events() const;

  // The last "usage" object. A stream has it in its last event if the client
  // asked for it.
  absl::optional<Usage> usage() const;

 private:
  // OpenAI's usage object with its details takes some 300 bytes.
  static constexpr size_t kUsageBytes = 512;
  // Enough for the name of that object, and for the end of an event.
  static constexpr size_t kTailBytes = 16;

  // The beginning of a line, of which the rest is not needed.
  static constexpr size_t kLineBytes = 64;

  void CountEvents(absl::string_view piece);
  void EndLine();
  void KeepTail(absl::string_view piece);
  size_t UsageIn(absl::string_view piece) const;
  void KeepUsage(absl::string_view piece);
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
  bool has_usage_ = false;
  std::array<char, kUsageBytes> usage_;  // behind its name
  size_t usage_bytes_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_EXCHANGE_ANSWER_METER_H_
