#include "daemon/proxy/relay/answer_meter.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "daemon/proxy/request/json_number.h"

namespace fineserve::proxy {
namespace {

// Returns the value of the first key of a JSON object if that key is `key`;
// else empty.
absl::string_view FirstValue(absl::string_view object, absl::string_view key) {
  const auto skip = [&object](absl::string_view mark) {
    object = absl::StripLeadingAsciiWhitespace(object);
    return absl::ConsumePrefix(&object, mark);
  };
  if (!skip("{") || !skip(key) || !skip(":")) return "";
  return absl::StripLeadingAsciiWhitespace(object);
}

// True if an event of this name can bring tokens. "message" is the name of an
// unnamed event (HTML, server-sent events).
bool CanBringTokens(absl::string_view event) {
  return event == "message" ||
         (absl::EndsWith(event, "delta") && event != "message_delta");
}

constexpr absl::string_view kUsageName = "\"usage\":";

// Returns the end of the last kUsageName in the text; npos if there is none.
// Runs on each piece of each stream, so it searches for the name's rarest
// letter.
size_t EndOfLastName(absl::string_view text) {
  constexpr size_t kRare = 4;
  static_assert(kUsageName[kRare] == 'g');
  size_t end = absl::string_view::npos;
  for (size_t at = kRare; (at = text.find('g', at)) != text.npos; ++at) {
    const size_t begin = at - kRare;
    if (absl::StartsWith(text.substr(begin), kUsageName)) {
      end = begin + kUsageName.size();
    }
  }
  return end;
}

}  // namespace

bool IsErrorData(absl::string_view data) {
  const absl::string_view error = FirstValue(data, "\"error\"");
  return (!error.empty() && !absl::StartsWith(error, "null")) ||
         absl::StartsWith(FirstValue(data, "\"type\""), "\"error\"");
}

AnswerStart::AnswerStart(unsigned status, bool streams) : streams_(streams) {
  constexpr unsigned kNotImplemented = 501;
  if (status >= 500 && status != kNotImplemented) error_ = EngineError::kStatus;
}

void AnswerStart::Feed(absl::string_view piece) {
  if (!streams_) own_ |= !piece.empty();
  if (is_known()) return;
  lines_.Feed(piece, [this](absl::string_view line) {
    EndLine(line);
    return !is_known();
  });
}

void AnswerStart::EndLine(absl::string_view line) {
  if (line.empty()) {
    name_ = Name::kPlain;
  } else if (absl::ConsumePrefix(&line, "event:")) {
    name_ = NameOf(absl::StripLeadingAsciiWhitespace(line));
  } else if (absl::ConsumePrefix(&line, "data:")) {
    EndData(absl::StripLeadingAsciiWhitespace(line));
  }
}

AnswerStart::Name AnswerStart::NameOf(absl::string_view event) {
  if (event == "error") return Name::kError;
  for (const char* early : {"response.created", "response.queued",
                            "response.in_progress", "ping"}) {
    if (event == early) return Name::kEarly;
  }
  return Name::kPlain;
}

void AnswerStart::EndData(absl::string_view data) {
  if (name_ == Name::kEarly || data.empty()) return;
  if (name_ == Name::kError || IsErrorData(data)) {
    error_ = EngineError::kEvent;
  } else {
    own_ = true;
  }
}

void AnswerMeter::Feed(absl::string_view piece) {
  CountEvents(piece);
  KeepUsage(piece);
  KeepTail(piece);
}

void AnswerMeter::CountEvents(absl::string_view piece) {
  lines_.Feed(piece, [this](absl::string_view line) {
    EndLine(line);
    return true;
  });
}

void AnswerMeter::EndLine(absl::string_view line) {
  if (line.empty()) {
    expects_token_ = true;
  } else if (absl::ConsumePrefix(&line, "event:")) {
    const absl::string_view name = absl::StripLeadingAsciiWhitespace(line);
    expects_token_ = CanBringTokens(name);
    has_error_ |= name == "error";
  } else if (absl::ConsumePrefix(&line, "data:")) {
    const absl::string_view data = absl::StripLeadingAsciiWhitespace(line);
    const bool is_error = IsErrorData(data);
    has_error_ |= is_error;
    token_events_ += expects_token_ && !is_error && data != "[DONE]";
    expects_token_ = false;
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

bool AnswerMeter::between_events() const {
  return tail_bytes_ == 0 || absl::EndsWith(tail(), "\n\n") ||
         absl::EndsWith(tail(), "\r\n\r\n");
}

// Returns the start of the value of the last "usage" in the piece; npos if it
// has none.
size_t AnswerMeter::UsageIn(absl::string_view piece) const {
  size_t at = EndOfLastName(piece);
  if (at != absl::string_view::npos) return at;
  // The name may begin in the previous piece.
  std::array<char, kTailBytes + kUsageName.size()> seam;
  const size_t more = std::min(piece.size(), kUsageName.size());
  memcpy(seam.data(), tail_.data(), tail_bytes_);
  memcpy(seam.data() + tail_bytes_, piece.data(), more);
  at = EndOfLastName({seam.data(), tail_bytes_ + more});
  const bool is_cut = at != absl::string_view::npos && at > tail_bytes_;
  return is_cut ? at - tail_bytes_ : absl::string_view::npos;
}

// Keeps the value of the last "usage". Quotes in a text are escaped, so no text
// can contain the name as it is written here. A null, which streams have in all
// events except the last, is skipped.
void AnswerMeter::KeepUsage(absl::string_view piece) {
  const size_t at = UsageIn(piece);
  absl::string_view behind = piece;
  if (at != absl::string_view::npos) {
    behind = piece.substr(at);
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(behind), "n"))
      return;
    has_usage_ = true;
    usage_bytes_ = 0;
  }
  if (!has_usage_) return;
  const size_t kept = std::min(behind.size(), kUsageBytes - usage_bytes_);
  memcpy(usage_.data() + usage_bytes_, behind.data(), kept);
  usage_bytes_ += kept;
}

absl::optional<Usage> AnswerMeter::usage() const {
  // The object's own numbers come first; those of these names in its nested
  // details come later.
  const absl::string_view object = absl::StripLeadingAsciiWhitespace(
      absl::string_view(usage_.data(), usage_bytes_));
  if (!absl::StartsWith(object, "{")) return absl::nullopt;
  const auto either = [&](const char* name, const char* other) {
    const absl::optional<uint32_t> number = NumberOf(object, name);
    return number ? *number : NumberOf(object, other).value_or(0);
  };
  // Reads the names that completions and chats use, or else those of responses
  // and messages.
  const Usage usage = {either("prompt_tokens", "input_tokens"),
                       either("completion_tokens", "output_tokens")};
  if (usage.prompt_tokens == 0) return absl::nullopt;  // "usage":null
  return usage;
}

}  // namespace fineserve::proxy
