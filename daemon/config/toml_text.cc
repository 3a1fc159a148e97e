#include "daemon/config/toml_text.h"

#include "absl/strings/match.h"

namespace fineserve::config {
namespace {

// Bytes until the end of the string that begins `text`, its quotes included; of
// one that does not end, those until the end of its line, or of the text.
size_t StringBytes(absl::string_view text) {
  const char quote = text[0];
  const bool escapes = quote == '"';
  const absl::string_view three = escapes ? "\"\"\"" : "'''";
  const bool lines = absl::StartsWith(text, three);
  const absl::string_view end = lines ? three : text.substr(0, 1);
  for (size_t i = end.size(); i < text.size(); ++i) {
    if (escapes && text[i] == '\\') {
      ++i;
    } else if (absl::StartsWith(text.substr(i), end)) {
      return i + end.size();
    } else if (!lines && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

size_t CommentBytes(absl::string_view text) {
  const size_t end = text.find('\n');
  return end == absl::string_view::npos ? text.size() : end;
}

// Bytes of `text` that need not be looked at; 0 if its first one must be.
size_t QuotedBytes(absl::string_view text) {
  if (text[0] == '#') return CommentBytes(text);
  return text[0] == '"' || text[0] == '\'' ? StringBytes(text) : 0;
}

}  // namespace

absl::optional<uint32_t> LineOfStrayCharacter(absl::string_view text) {
  constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";
  size_t i = absl::StartsWith(text, kByteOrderMark) ? kByteOrderMark.size() : 0;
  uint32_t line = 1;
  while (i < text.size()) {
    const size_t quoted = QuotedBytes(text.substr(i));
    if (quoted == 0 && static_cast<unsigned char>(text[i]) >= 0x80) return line;
    for (const size_t end = i + (quoted == 0 ? 1 : quoted); i < end; ++i) {
      line += text[i] == '\n';
    }
  }
  return absl::nullopt;
}

}  // namespace fineserve::config
