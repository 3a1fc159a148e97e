#include "daemon/base/http/traceparent.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

// "00-", 32 digits, "-", 16 digits, "-", 2 digits.
constexpr size_t kVersionZeroBytes = 55;

bool IsDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool AllDigits(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), IsDigit);
}

bool IsId(absl::string_view text) {
  return AllDigits(text) && text.find_first_not_of('0') != text.npos;
}

bool IsOdd(char digit) {
  return (digit <= '9' ? digit - '0' : digit - 'a' + 10) % 2 != 0;
}

}  // namespace

absl::optional<Traceparent> ParseTraceparent(absl::string_view value) {
  if (value.size() < kVersionZeroBytes) return absl::nullopt;
  const absl::string_view version = value.substr(0, 2);
  const absl::string_view trace = value.substr(3, 32);
  const absl::string_view span = value.substr(36, 16);
  const absl::string_view flags = value.substr(53, 2);
  const bool longer = value.size() > kVersionZeroBytes;
  if (!AllDigits(version) || version == "ff" || value[2] != '-' ||
      !IsId(trace) || value[35] != '-' || !IsId(span) || value[52] != '-' ||
      !AllDigits(flags) ||
      (longer && (version == "00" || value[kVersionZeroBytes] != '-'))) {
    return absl::nullopt;
  }
  return Traceparent{std::string(trace), std::string(span), IsOdd(flags[1])};
}

std::string TraceparentText(const Traceparent& of) {
  return absl::StrCat("00-", of.trace_id, "-", of.span_id,
                      of.sampled ? "-01" : "-00");
}

absl::optional<Traceparent> TraceparentOf(const RequestParser& request) {
  absl::string_view value;
  int fields = 0;
  request.ForEachField([&](absl::string_view name, absl::string_view its) {
    if (!absl::EqualsIgnoreCase(name, "traceparent")) return;
    value = its;
    ++fields;
  });
  if (fields != 1) return absl::nullopt;
  return ParseTraceparent(value);
}

}  // namespace fineserve::proxy
