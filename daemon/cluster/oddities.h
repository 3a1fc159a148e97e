#ifndef DAEMON_CLUSTER_ODDITIES_H_
#define DAEMON_CLUSTER_ODDITIES_H_

#include <string>
#include <vector>

#include "daemon/cluster/fleet_view.h"

namespace fineserve::cluster {

// What an operator should look into although the fleet is planned, and what to
// do about it: others at the door, changed bytes, plans of a leader that slept.
struct Oddity {
  std::string what;
  std::string cure;
};
// `machine`: only what was seen there; empty: all.
std::vector<Oddity> OdditiesOf(const FleetView& view,
                               const std::string& machine);

}  // namespace fineserve::cluster

#endif  // DAEMON_CLUSTER_ODDITIES_H_
