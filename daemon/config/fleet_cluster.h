#ifndef DAEMON_CONFIG_FLEET_CLUSTER_H_
#define DAEMON_CONFIG_FLEET_CLUSTER_H_

#include <string>

#include "absl/status/status.h"
#include "daemon/config/fleet.h"
#include "daemon/config/toml_keys.h"

namespace fineserve::config {

// [cluster] of the fleet file at `path`.
Setter Cluster(const std::string& path, ClusterSettings* cluster);

// Checks that each GPU of a fleet of several machines has exactly one machine.
// InvalidArgument in one line with the fix, without the file's path.
absl::Status CheckCluster(const Fleet& fleet);

// Gives every engine whose URL, or command, says {host} the host of the machine
// that has its GPU. To be called once all is read.
absl::Status PlaceOnMachines(Fleet* fleet);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_FLEET_CLUSTER_H_
