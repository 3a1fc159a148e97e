#ifndef DAEMON_CONFIG_FLEET_OUTSIDE_H_
#define DAEMON_CONFIG_FLEET_OUTSIDE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config/fleet.h"
#include "daemon/config/toml_keys.h"

namespace fineserve::config {

// The sections [[outside]] of the fleet file at `path`.
Setter Outside(const std::string& path, std::vector<OutsideModel>* outside);

// Checks that each model outside has a name of its own, and that each fallback
// is a model and none leads back to where it began. InvalidArgument in one line
// with the fix, without the file's path.
absl::Status CheckFallbacks(const Fleet& fleet);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_FLEET_OUTSIDE_H_
