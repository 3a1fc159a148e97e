#include "daemon/config/frame_pattern.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/abi/rule.h"

namespace fineserve::config {
namespace {

absl::Status Bad(const std::string& function, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("bad function \"", function, "\": ", why,
                   "; write it like \"llama_kv_cache::llama_kv_cache\""));
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         c == '$' || c == '*';
}

bool IsComponent(absl::string_view text) {
  // A run of '*' would only slow matching down.
  return !text.empty() && !absl::ascii_isdigit(text[0]) && text != "*" &&
         !absl::StrContains(text, "**") &&
         std::all_of(text.begin(), text.end(), IsNameCharacter);
}

// <length><identifier>, or the bare text where a '*' makes the length unknown.
std::string SourceName(absl::string_view component) {
  if (absl::StrContains(component, '*')) return std::string(component);
  return absl::StrCat(component.size(), component);
}

// The last component of two or more, which may be a constructor or a destructor
// of the one before.
std::string LastName(absl::string_view before, absl::string_view last) {
  if (last == before) return "C";
  if (last == absl::StrCat("~", before)) return "D";
  return SourceName(last);
}

bool AllComponents(const std::vector<absl::string_view>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i > 0 && i + 1 == parts.size();
    if (last && parts[i] == absl::StrCat("~", parts[i - 1])) continue;
    if (!IsComponent(parts[i])) return false;
  }
  return true;
}

std::string Nested(const std::vector<absl::string_view>& parts) {
  std::string name;
  for (size_t i = 0; i + 1 < parts.size(); ++i) name += SourceName(parts[i]);
  return absl::StrCat("_Z*", name,
                      LastName(parts[parts.size() - 2], parts.back()), "*");
}

std::string Translate(const std::vector<absl::string_view>& parts) {
  if (parts.size() > 1) return Nested(parts);
  return absl::StrCat(parts[0], "|_Z*", SourceName(parts[0]), "*");
}

}  // namespace

absl::StatusOr<std::string> SymbolPattern(const std::string& function) {
  const std::vector<absl::string_view> parts = absl::StrSplit(function, "::");
  if (!AllComponents(parts)) {
    return Bad(function, "only names, '::', '~' and '*' are understood");
  }
  const bool mangled = absl::StartsWith(function, "_Z");
  std::string pattern = mangled ? function : Translate(parts);
  if (pattern.size() >= abi::kPatternBytes) {
    return Bad(function, absl::StrCat("longer than ", abi::kPatternBytes - 1,
                                      " characters when mangled"));
  }
  return pattern;
}

}  // namespace fineserve::config
