#include "daemon/proxy/request/admin_host.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace fineserve::proxy {
namespace {

bool IsAddress(absl::string_view name) {
  boost::system::error_code e;
  boost::asio::ip::make_address(std::string(name), e);
  return !e;
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

}  // namespace fineserve::proxy
