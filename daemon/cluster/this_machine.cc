#include "daemon/cluster/this_machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fineserve::cluster {
namespace {

std::string TextOf(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return "";
  }
  const char* written =
      inet_ntop(address->sa_family, bytes, text.data(), text.size());
  return written == nullptr ? "" : written;
}

// Addresses of the interfaces, and the host's name.
std::set<std::string> OwnHosts() {
  std::set<std::string> hosts;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr != nullptr) hosts.insert(TextOf(i->ifa_addr));
    }
    freeifaddrs(all);
  }
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) == 0) {
    hosts.insert(name.data());
  }
  return hosts;
}

}  // namespace

absl::StatusOr<config::Machine> ThisMachine(
    const config::ClusterSettings& cluster) {
  const char* named = getenv("FINESERVE_MACHINE");
  if (named != nullptr && named[0] != '\0') {
    const config::Machine* machine = cluster.Named(named);
    if (machine != nullptr) return *machine;
    return absl::NotFoundError(
        absl::StrCat("$FINESERVE_MACHINE is \"", named,
                     "\", and [cluster] has no such machine; correct it, or "
                     "add the machine to the fleet file"));
  }
  const std::set<std::string> own = OwnHosts();
  std::vector<const config::Machine*> found;
  for (const config::Machine& m : cluster.machines) {
    if (own.count(m.host) > 0 || own.count(m.name) > 0) found.push_back(&m);
  }
  if (found.size() == 1) return *found[0];
  return absl::NotFoundError(absl::StrCat(
      found.empty() ? "no machine" : "more than one machine",
      " of [cluster] has a host that is an address of this one; set "
      "$FINESERVE_MACHINE to this machine's name in the fleet file"));
}

absl::StatusOr<config::Fleet> OwnPart(config::Fleet fleet) {
  if (!fleet.cluster.IsOn()) return fleet;
  const absl::StatusOr<config::Machine> machine = ThisMachine(fleet.cluster);
  if (!machine.ok()) return machine.status();
  const auto is_others = [&](const config::FleetEngine& e) {
    const config::Machine* its = fleet.cluster.MachineOf(e.gpu);
    return its == nullptr || its->name != machine->name;
  };
  fleet.engines.erase(
      std::remove_if(fleet.engines.begin(), fleet.engines.end(), is_others),
      fleet.engines.end());
  return fleet;
}

}  // namespace fineserve::cluster
