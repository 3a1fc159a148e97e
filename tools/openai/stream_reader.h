#ifndef TOOLS_OPENAI_STREAM_READER_H_
#define TOOLS_OPENAI_STREAM_READER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace fineserve::openai {

// Reads an OpenAI stream (server-sent events) from the body's bytes as they
// come, in any pieces. Only events with usage or an error are parsed; the
// others are counted.
class StreamReader {
 public:
  void Feed(absl::string_view bytes);

  // Events with data, except [DONE]. The first one means the first token, for
  // chats too (vLLM sends the role with the first token).
  uint64_t events() const { return events_; }
  bool done() const { return done_; }                  // [DONE] came
  const std::string& error() const { return error_; }  // empty if none

  // Generated tokens by the engine's own count (include_usage), otherwise one
  // token per event.
  uint32_t output_tokens() const;
  uint32_t prompt_tokens() const { return prompt_tokens_; }  // 0: unknown

 private:
  void Line(absl::string_view line);
  void Parse(absl::string_view json);

  // An event longer than this is not OpenAI's; it is cut off and reported.
  static constexpr size_t kMostLineBytes = 1 << 20;

  std::string partial_;  // the line that has not ended
  uint64_t events_ = 0;
  bool done_ = false;
  std::string error_;
  uint32_t prompt_tokens_ = 0;
  uint32_t completion_tokens_ = 0;
};

}  // namespace fineserve::openai

#endif  // TOOLS_OPENAI_STREAM_READER_H_
