#ifndef DAEMON_FLEET_MACHINES_THIS_MACHINE_H_
#define DAEMON_FLEET_MACHINES_THIS_MACHINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::cluster {

// Returns the cluster's machine that this process runs on: the one that
// $FINESERVE_MACHINE names, else the one whose host is an address of this
// machine, or its own name. NotFound, with the fix, if there is none.
absl::StatusOr<config::Machine> ThisMachine(
    const config::ClusterSettings& cluster);

// Returns `fleet` with only this machine's engines, if the fleet has several
// machines.
absl::StatusOr<config::Fleet> OwnPart(config::Fleet fleet);

}  // namespace fineserve::cluster

#endif  // DAEMON_FLEET_MACHINES_THIS_MACHINE_H_
