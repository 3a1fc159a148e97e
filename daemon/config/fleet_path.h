#ifndef DAEMON_CONFIG_FLEET_PATH_H_
#define DAEMON_CONFIG_FLEET_PATH_H_

#include <string>

namespace fineserve::config {

// The path by which one fleet is told from another: absolute. Links in it stay,
// for what they point to may be replaced while the fleet remains the same, as
// when Kubernetes updates a ConfigMap.
std::string FleetPath(const std::string& path);

// Whether two such paths name one fleet: they are the same, or so is the file
// that they lead to now.
bool IsSameFleet(const std::string& a, const std::string& b);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_FLEET_PATH_H_
