#ifndef DAEMON_FLEET_MACHINES_DAEMON_DIRECTORY_H_
#define DAEMON_FLEET_MACHINES_DAEMON_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/contract/wire/keys.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::cluster {

// Finds a fleet's daemons: in this machine's runtime folder, or at the other
// machines' TCP addresses. Any thread.
class DaemonDirectory {
 public:
  // `folder` is the runtime folder. `keys` are used only for other machines.
  DaemonDirectory(config::ClusterSettings cluster, std::string folder,
                  wire::KeyFolder keys);

  // True if the GPU's daemon is on this machine.
  bool IsLocal(const std::string& gpu) const;
  // Returns the path at which a local daemon accepts admission messages.
  absl::StatusOr<std::string> LocalPath(const std::string& gpu) const;
  // Connects to the daemon of the GPU, named as in the fleet file. Errors say
  // what is missing, for example a key; a daemon that does not answer is no
  // error.
  absl::StatusOr<wire::ClientSocket> Connect(const std::string& gpu) const;

 private:
  const config::ClusterSettings cluster_;
  const std::string folder_;
  const wire::KeyFolder keys_;
  absl::StatusOr<config::Machine> machine_;  // this one
};

// Returns the TCP address and key of a GPU's daemon on another machine.
absl::StatusOr<wire::RemoteDaemon> RemoteDaemonOf(
    const config::ClusterSettings& cluster, const std::string& gpu,
    const wire::KeyFolder& keys);

}  // namespace fineserve::cluster

#endif  // DAEMON_FLEET_MACHINES_DAEMON_DIRECTORY_H_
