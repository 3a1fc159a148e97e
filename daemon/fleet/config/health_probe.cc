#include "daemon/fleet/config/health_probe.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fineserve::config {

std::string HealthRequest(const std::string& host, uint16_t port) {
  return absl::StrCat("GET /health HTTP/1.1\r\nHost: ", host, ":", port,
                      "\r\nConnection: close\r\n\r\n");
}

absl::optional<bool> SaysHealthy(absl::string_view answer) {
  constexpr absl::string_view kGood = "HTTP/1.1 200";
  if (answer.size() < kGood.size()) return absl::nullopt;
  return absl::StartsWith(answer, kGood);
}

}  // namespace fineserve::config
