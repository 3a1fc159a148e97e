#include "daemon/fleet/machines/this_machine.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::cluster {
namespace {

// True if the address belongs to this machine: only such an address can be
// bound to. (A list of interfaces would need a netlink socket, which services
// are denied.)
bool IsOwnAddress(const std::string& host) {
  sockaddr_storage at = {};
  socklen_t bytes = 0;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&at);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&at);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    at.ss_family = AF_INET;
    bytes = sizeof(*v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    at.ss_family = AF_INET6;
    bytes = sizeof(*v6);
  } else {
    return false;
  }
  const driver::Descriptor probe(
      socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return bind(probe.get(), reinterpret_cast<const sockaddr*>(&at), bytes) == 0;
}

std::string OwnName() {
  std::array<char, 256> name = {};
  const bool known = gethostname(name.data(), name.size() - 1) == 0;
  return known ? name.data() : "";
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
  const std::string own = OwnName();
  std::vector<const config::Machine*> found;
  for (const config::Machine& m : cluster.machines) {
    if (IsOwnAddress(m.host) || m.host == own || m.name == own) {
      found.push_back(&m);
    }
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
