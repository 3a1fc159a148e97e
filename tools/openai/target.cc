#include "tools/openai/target.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace fineserve::openai {

absl::StatusOr<Target> ParseUrl(const std::string& url) {
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url, "\" does not begin with http://"));
  }
  absl::ConsumeSuffix(&rest, "/");
  const size_t colon = rest.rfind(':');
  const absl::string_view host = rest.substr(0, colon);
  const absl::string_view port =
      colon == rest.npos ? "80" : rest.substr(colon + 1);
  uint32_t number = 0;
  if (host.empty() || rest.find('/') != rest.npos ||
      !absl::SimpleAtoi(port, &number) || number == 0 || number > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url, "\" is not http://HOST:PORT"));
  }
  return Target{std::string(host), std::string(port), "/v1/completions", ""};
}

}  // namespace fineserve::openai
