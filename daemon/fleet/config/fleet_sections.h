#ifndef DAEMON_FLEET_CONFIG_FLEET_SECTIONS_H_
#define DAEMON_FLEET_CONFIG_FLEET_SECTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::config {

// The parts of the fleet file at `path` that the planner alone reads: its own
// section, and the expected demand on a model.
Setter Planner(const std::string& path, PlannerSettings* planner);
Setter Expected(const std::string& path, FleetModel* model);

// Checks that the fleet gives the planner all that it needs, and has a planner
// if it needs one. InvalidArgument in one line with the fix, without the file's
// path.
absl::Status CheckPlanned(const Fleet& fleet);

// [cluster] of the fleet file at `path`.
Setter Cluster(const std::string& path, ClusterSettings* cluster);

// Checks that each GPU of a fleet of several machines has exactly one machine.
// InvalidArgument in one line with the fix, without the file's path.
absl::Status CheckCluster(const Fleet& fleet);

// Gives every engine whose URL, or command, says {host} the host of the machine
// that has its GPU. To be called once all is read.
absl::Status PlaceOnMachines(Fleet* fleet);

// The sections [[outside]] of the fleet file at `path`.
Setter Outside(const std::string& path, std::vector<OutsideModel>* outside);

// Checks that each model outside has its own name, that each fallback is a
// model, and that no chain of fallbacks leads back to its beginning.
// InvalidArgument in one line with the fix, without the file's path.
absl::Status CheckFallbacks(const Fleet& fleet);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_FLEET_SECTIONS_H_
