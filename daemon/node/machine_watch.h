#ifndef DAEMON_NODE_MACHINE_WATCH_H_
#define DAEMON_NODE_MACHINE_WATCH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/clock/clock.h"
#include "daemon/cluster/fleet_view.h"

namespace fineserve::node {

// Tracks which machines are registered, which were, and which are lost: a
// machine is lost if its registration was missing whenever etcd was asked, for
// `lost_ns` by this machine's clock. A machine that was never seen gets more
// time, since a fleet's machines start one after the other. One that is missing
// because its lease lapsed is silent since a `ttl_ns` before. Pure. Not
// thread-safe.
class MachineWatch {
 public:
  // `machines`: those of the fleet file. `clock` outlives it.
  MachineWatch(std::vector<std::string> machines, uint64_t lost_ns,
               uint64_t never_seen_ns, uint64_t ttl_ns, const Clock* clock);

  // All that are registered now, as etcd's majority says, and the names of
  // those that have ended as they should.
  void Saw(const std::vector<cluster::MachineRecord>& registered,
           const std::set<std::string>& ended);

  std::set<std::string> Lost() const;
  // All of the fleet file, in its order, and others that are registered.
  std::vector<cluster::SeenMachine> All() const;
  // Registered under this name by another process than `instance`.
  bool HasDouble(const std::string& machine, const std::string& instance) const;

 private:
  struct Known {
    cluster::MachineRecord record;
    bool was_seen = false;
    absl::optional<uint64_t> missing_since_ns;
    uint64_t silent_ns = 0;
  };
  bool IsLost(const Known& known) const;

  const uint64_t lost_ns_;
  const uint64_t never_seen_ns_;
  const uint64_t ttl_ns_;
  const Clock* const clock_;
  std::vector<std::string> order_;
  std::map<std::string, Known> known_;
};

}  // namespace fineserve::node

#endif  // DAEMON_NODE_MACHINE_WATCH_H_
