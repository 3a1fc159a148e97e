#include "daemon/proxy/exchange/answer_start.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace fineserve::proxy {
namespace {

// The value behind the first key of a JSON object if that is `key`; else empty.
absl::string_view FirstValue(absl::string_view object, absl::string_view key) {
  const auto skip = [&object](absl::string_view mark) {
    object = absl::StripLeadingAsciiWhitespace(object);
    return absl::ConsumePrefix(&object, mark);
  };
  if (!skip("{") || !skip(key) || !skip(":")) return "";
  return absl::StripLeadingAsciiWhitespace(object);
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
  while (!is_known()) {
    const size_t end = piece.find('\n');
    const size_t kept = std::min({end, piece.size(), kLineBytes - line_bytes_});
    memcpy(line_.data() + line_bytes_, piece.data(), kept);
    line_bytes_ += kept;
    if (end == absl::string_view::npos) return;
    EndLine(absl::StripTrailingAsciiWhitespace(
        {line_.data(), std::exchange(line_bytes_, 0)}));
    piece.remove_prefix(end + 1);
  }
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

}  // namespace fineserve::proxy
