#include "daemon/fleet/config/address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fineserve::config {

absl::Status SplitAddress(absl::string_view text, std::string* host,
                          uint16_t* port) {
  const size_t colon = text.rfind(':');
  uint32_t number = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &number) ||
      number > UINT16_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bad address \"", text, "\"; write it like 127.0.0.1:8000"));
  }
  absl::string_view name = text.substr(0, colon);
  if (absl::StartsWith(name, "[") && absl::EndsWith(name, "]")) {
    name = name.substr(1, name.size() - 2);
  }
  *host = std::string(name);
  *port = static_cast<uint16_t>(number);
  return absl::OkStatus();
}

absl::Status SetListenAddress(const std::string& text, ListenAddress* out) {
  *out = {};
  if (text == "off") return absl::OkStatus();
  const size_t colon = text.rfind(':');
  const bool is_port = colon == std::string::npos || colon == 0;
  const absl::Status s = SplitAddress(
      is_port ? absl::StrCat("127.0.0.1:", text.substr(colon + 1)) : text,
      &out->host, &out->port);
  if (!s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bad address \"", text, "\"; write it like 127.0.0.1:9470"));
  }
  out->on = true;
  return absl::OkStatus();
}

}  // namespace fineserve::config
