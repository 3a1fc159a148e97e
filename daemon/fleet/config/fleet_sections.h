#ifndef DAEMON_FLEET_CONFIG_FLEET_SECTIONS_H_
#define DAEMON_FLEET_CONFIG_FLEET_SECTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::config {

// Setters for the parts of the fleet file at `path` that only the planner
// reads: its own section, and the expected demand on a model.
Setter Planner(const std::string& path, PlannerSettings* planner);
Setter Expected(const std::string& path, FleetModel* model);

// Checks that the fleet gives the planner all that it needs, and has a planner
// if it needs one. InvalidArgument in one line with the fix, without the file's
// path.
absl::Status CheckPlanned(const Fleet& fleet);

// A setter for [cluster] of the fleet file at `path`.
Setter Cluster(const std::string& path, ClusterSettings* cluster);

// Checks that each GPU of a fleet of several machines has exactly one machine.
// InvalidArgument in one line with the fix, without the file's path.
absl::Status CheckCluster(const Fleet& fleet);

// Replaces {host} in the URL or command of every engine by the host of the
// machine that has its GPU. Must be called after the whole file is read.
absl::Status PlaceOnMachines(Fleet* fleet);

// A setter for the sections [[outside]] of the fleet file at `path`.
Setter Outside(const std::string& path, std::vector<OutsideModel>* outside);

// Checks that each OutsideModel has a name of its own, that each fallback is a
// model, and that no chain of fallbacks leads back to its beginning. Errors are
// InvalidArgument in one line with the fix, without the file's path.
absl::Status CheckFallbacks(const Fleet& fleet);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_FLEET_SECTIONS_H_
