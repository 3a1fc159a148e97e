#ifndef DAEMON_CONFIG_FLEET_PLANNER_H_
#define DAEMON_CONFIG_FLEET_PLANNER_H_

#include <string>

#include "absl/status/status.h"
#include "daemon/config/fleet.h"
#include "daemon/config/toml_keys.h"

namespace fineserve::config {

// The parts of the fleet file at `path` that the planner alone reads: its own
// section, and the expected demand on a model.
Setter Planner(const std::string& path, PlannerSettings* planner);
Setter Expected(const std::string& path, FleetModel* model);

// Checks that the fleet gives the planner all that it needs, and has a planner
// if it needs one. InvalidArgument in one line with the fix, without the file's
// path.
absl::Status CheckPlanned(const Fleet& fleet);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_FLEET_PLANNER_H_
