#include "daemon/proxy/request/cors.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

bool IsAddress(absl::string_view name) {
  boost::system::error_code e;
  boost::asio::ip::make_address(std::string(name), e);
  return !e;
}

constexpr absl::string_view kAskedMethod = "access-control-request-method";
constexpr absl::string_view kAskedHeaders = "access-control-request-headers";

bool Lists(const std::vector<std::string>& origins, absl::string_view origin) {
  return std::find(origins.begin(), origins.end(), origin) != origins.end();
}

}  // namespace

bool MayNameAdmin(absl::string_view host,
                  const config::ProxySettings& settings) {
  const std::vector<std::string>& names = settings.admin_names;
  if (host.empty() || host[0] == '[') return true;  // an IPv6 address
  const absl::string_view name = host.substr(0, host.find(':'));
  return name.find('.') == absl::string_view::npos || IsAddress(name) ||
         absl::EndsWithIgnoreCase(name, ".localhost") ||
         absl::EqualsIgnoreCase(name, settings.admin_host) ||
         std::any_of(names.begin(), names.end(), [&](const auto& known) {
           return absl::EqualsIgnoreCase(known, name);
         });
}

bool IsPreflight(const RequestParser& request) {
  return request.method() == "OPTIONS" && !request.Field("origin").empty() &&
         !request.Field(kAskedMethod).empty();
}

// Lets a browser keep the answer to a preflight for ten minutes.
std::string CorsFields(const RequestParser& request,
                       const std::vector<std::string>& origins) {
  const absl::string_view origin = request.Field("origin");
  const bool all = Lists(origins, "*");
  if (origin.empty() || !(all || Lists(origins, origin))) return "";
  std::string fields =
      absl::StrCat("access-control-allow-origin: ", all ? "*" : origin,
                   all ? "\r\n" : "\r\nvary: origin\r\n");
  if (!IsPreflight(request)) {
    absl::StrAppend(&fields,
                    "access-control-expose-headers: x-request-id, retry-after, "
                    "retry-after-ms, x-fineserve-reason, x-fineserve-model, "
                    "x-fineserve-predicted-ttft-ms\r\n");
    return fields;
  }
  absl::StrAppend(&fields,
                  "access-control-allow-methods: ", request.Field(kAskedMethod),
                  "\r\naccess-control-max-age: 600\r\n");
  const absl::string_view headers = request.Field(kAskedHeaders);
  if (!headers.empty()) {
    absl::StrAppend(&fields, "access-control-allow-headers: ", headers, "\r\n");
  }
  return fields;
}

}  // namespace fineserve::proxy
