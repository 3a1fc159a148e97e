#ifndef DAEMON_NODE_LOCAL_DAEMONS_H_
#define DAEMON_NODE_LOCAL_DAEMONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/machines/daemon_directory.h"
#include "daemon/fleet/machines/fleet_view.h"

namespace fineserve::node {

// Asks this machine's daemons for their reports. No call blocks. Confined to a
// thread.
class LocalDaemons {
 public:
  // The pointers outlive it.
  LocalDaemons(const config::ClusterSettings& cluster,
               const config::Machine& machine,
               const cluster::DaemonDirectory* directory, const Clock* clock);

  // Asks every daemon for its report, and reads the latest answers. Call it
  // about once a second.
  void Turn();
  // Returns one record for each GPU of the machine.
  std::vector<cluster::DaemonRecord> Records() const;
  bool AnyAnswers() const;

 private:
  struct Daemon {
    cluster::DaemonRecord record;
    absl::optional<wire::ClientSocket> socket;
    uint64_t heard_ns = 0;
  };
  void Receive(Daemon* daemon);
  bool IsFresh(const Daemon& daemon) const;

  const cluster::DaemonDirectory* const directory_;
  const Clock* const clock_;
  std::map<std::string, Daemon> daemons_;  // by GPU, as the fleet writes it
};

}  // namespace fineserve::node

#endif  // DAEMON_NODE_LOCAL_DAEMONS_H_
