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
// its tail. For server-sent events it counts the data events and knows whether
// the stream is between two events; in any answer it finds the usage near the
// end.
class AnswerMeter {
 public:
  void Feed(absl::string_view piece);

  // Lines that begin with "data:", "[DONE]" excepted.
  uint32_t data_events() const;

  // At the beginning, or right after a blank line: an event can be appended.
  bool between_events() const;

  // The last "usage" object, if it lies in the tail. A stream has it in its
  // last event if the client asked for it.
  absl::optional<Usage> usage() const;

 private:
  // OpenAI's usage object with its details takes some 300 bytes, and in a plain
  // answer vLLM puts some 100 bytes of other fields behind it.
  static constexpr size_t kTailBytes = 1024;

  void CountLines(absl::string_view piece);
  void KeepTail(absl::string_view piece);
  absl::string_view tail() const { return {tail_.data(), tail_bytes_}; }

  uint32_t lines_of_data_ = 0;
  // Characters of "data:" that the present line has matched; kNoMatch once it
  // differs or has been counted.
  static constexpr size_t kNoMatch = 99;
  size_t matched_ = 0;
  std::array<char, kTailBytes> tail_;
  size_t tail_bytes_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_EXCHANGE_ANSWER_METER_H_
