#include "daemon/proxy/exchange/answer_meter.h"

#include <string.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "daemon/proxy/request/json_number.h"

namespace fineserve::proxy {
namespace {

constexpr absl::string_view kData = "data:";

}  // namespace

void AnswerMeter::Feed(absl::string_view piece) {
  CountLines(piece);
  KeepTail(piece);
}

void AnswerMeter::CountLines(absl::string_view piece) {
  size_t i = 0;
  while (i < piece.size()) {
    if (matched_ == kNoMatch) {
      const void* end = memchr(piece.data() + i, '\n', piece.size() - i);
      if (end == nullptr) return;
      i = static_cast<size_t>(static_cast<const char*>(end) - piece.data()) + 1;
      matched_ = 0;
      continue;
    }
    const char c = piece[i++];
    if (c == '\n') {
      matched_ = 0;
    } else if (c != kData[matched_]) {
      matched_ = kNoMatch;
    } else if (++matched_ == kData.size()) {
      ++lines_of_data_;
      matched_ = kNoMatch;
    }
  }
}

void AnswerMeter::KeepTail(absl::string_view piece) {
  if (piece.size() > kTailBytes)
    piece = piece.substr(piece.size() - kTailBytes);
  const size_t kept = std::min(tail_bytes_, kTailBytes - piece.size());
  memmove(tail_.data(), tail_.data() + tail_bytes_ - kept, kept);
  memcpy(tail_.data() + kept, piece.data(), piece.size());
  tail_bytes_ = kept + piece.size();
}

uint32_t AnswerMeter::data_events() const {
  const bool done =
      absl::EndsWith(absl::StripTrailingAsciiWhitespace(tail()), "[DONE]");
  return done && lines_of_data_ > 0 ? lines_of_data_ - 1 : lines_of_data_;
}

bool AnswerMeter::between_events() const {
  return tail_bytes_ == 0 || absl::EndsWith(tail(), "\n\n") ||
         absl::EndsWith(tail(), "\r\n\r\n");
}

absl::optional<Usage> AnswerMeter::usage() const {
  // The first numbers of these names after it are its own; those of its nested
  // details come later.
  const size_t at = tail().rfind("\"usage\":");
  if (at == absl::string_view::npos) return absl::nullopt;
  const absl::string_view object = tail().substr(at);
  const auto either = [&](const char* name, const char* other) {
    const absl::optional<uint32_t> number = NumberOf(object, name);
    return number ? *number : NumberOf(object, other).value_or(0);
  };
  // Of completions and chats, or else of responses and messages.
  const Usage usage = {either("prompt_tokens", "input_tokens"),
                       either("completion_tokens", "output_tokens")};
  if (usage.prompt_tokens == 0) return absl::nullopt;  // "usage":null
  return usage;
}

}  // namespace fineserve::proxy
