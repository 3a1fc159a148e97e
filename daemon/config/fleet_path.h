#ifndef DAEMON_CONFIG_FLEET_PATH_H_
#define DAEMON_CONFIG_FLEET_PATH_H_

#include <string>

namespace fineserve::config {

// The absolute path that identifies a fleet. Links in it stay, for what they
// point to may be replaced while the fleet remains the same, as when Kubernetes
// updates a ConfigMap.
std::string FleetPath(const std::string& path);

// True if two such paths name one fleet: they are equal, or lead to the same
// file now.
bool IsSameFleet(const std::string& a, const std::string& b);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_FLEET_PATH_H_
