#include "daemon/proxy/answer_meter.h"

#include <string.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace fineserve::proxy {
namespace {

constexpr absl::string_view kData = "data:";

// The number behind `"name":` in `object`, 0 if there is none.
uint32_t NumberOf(absl::string_view object, absl::string_view name) {
  const size_t at = object.find(name);
  if (at == absl::string_view::npos) return 0;
  absl::string_view rest = object.substr(at + name.size());
  rest = absl::StripLeadingAsciiWhitespace(rest);
  size_t digits = 0;
  while (digits < rest.size() && absl::ascii_isdigit(rest[digits])) ++digits;
  uint32_t number = 0;
  return absl::SimpleAtoi(rest.substr(0, digits), &number) ? number : 0;
}

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
  // Quotes inside a JSON string are escaped: this is a key, not a text. The
  // first numbers of these names behind it are its own; details nest behind.
  const size_t at = tail().rfind("\"usage\":");
  if (at == absl::string_view::npos) return absl::nullopt;
  const absl::string_view object = tail().substr(at);
  const Usage usage = {NumberOf(object, "\"prompt_tokens\":"),
                       NumberOf(object, "\"completion_tokens\":")};
  if (usage.prompt_tokens == 0) return absl::nullopt;  // "usage":null
  return usage;
}

}  // namespace fineserve::proxy
