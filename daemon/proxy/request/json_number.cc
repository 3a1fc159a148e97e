#include "daemon/proxy/request/json_number.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {

absl::optional<uint32_t> NumberOf(absl::string_view json,
                                  absl::string_view name) {
  const std::string key = absl::StrCat("\"", name, "\":");
  const size_t at = json.find(key);
  if (at == absl::string_view::npos) return absl::nullopt;
  json.remove_prefix(at + key.size());
  json = absl::StripLeadingAsciiWhitespace(json);
  const auto end = std::find_if_not(json.begin(), json.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  // A fraction or an exponent does not end a whole number.
  if (end == json.end() || absl::StrContains(".eE", *end)) return absl::nullopt;
  const auto digits = static_cast<size_t>(end - json.begin());
  uint32_t number = 0;
  if (!absl::SimpleAtoi(json.substr(0, digits), &number)) return absl::nullopt;
  return number;
}

}  // namespace fineserve::proxy
