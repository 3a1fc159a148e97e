#ifndef DAEMON_CLUSTER_ODDITIES_H_
#define DAEMON_CLUSTER_ODDITIES_H_

#include <string>
#include <vector>

#include "daemon/cluster/fleet_view.h"

namespace fineserve::cluster {

// A finding that an operator should look into although the fleet is planned,
// with its cure: strangers who try to connect, changed bytes, plans of a leader
// that was suspended.
struct Oddity {
  std::string what;
  std::string cure;
};
// `machine`: only what was seen there; empty: all.
std::vector<Oddity> OdditiesOf(const FleetView& view,
                               const std::string& machine);

}  // namespace fineserve::cluster

#endif  // DAEMON_CLUSTER_ODDITIES_H_
