#ifndef DAEMON_NODE_MEMBERSHIP_H_
#define DAEMON_NODE_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fleet/machines/fleet_view.h"

namespace fineserve::node {

// Tracks which machines are registered, which have been, and which are lost. A
// machine is lost if its registration was missing in every answer of etcd for
// `lost_ns` by this machine's clock. A machine that was never seen gets more
// time, since a fleet's machines start one after the other. A machine that is
// missing because its lease lapsed counts as silent since `ttl_ns` before that.
// Pure. Not thread-safe.
class MachineWatch {
 public:
  // `machines`: those of the fleet file. `clock` must outlive this object.
  MachineWatch(std::vector<std::string> machines, uint64_t lost_ns,
               uint64_t never_seen_ns, uint64_t ttl_ns, const Clock* clock);

  // Takes the machines that are registered now, according to a majority of
  // etcd, and the names of machines that ended properly.
  void Saw(const std::vector<cluster::MachineRecord>& registered,
           const std::set<std::string>& ended);

  std::set<std::string> Lost() const;
  // Returns all machines of the fleet file, in its order, and then any others
  // that are registered.
  std::vector<cluster::SeenMachine> All() const;
  // True if another process than `instance` has registered under this name.
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

// The election's key as stored in etcd.
struct Election {
  std::string leader;  // a machine's name
  int64_t lease = 0;   // the leader's
  uint64_t term = 0;   // the key's create_revision: grows with every election
};

// One machine's lease in etcd and its part in the election (design note 0031).
// Pure: Node asks etcd and passes its answers to this class.
//
// The election is one key, which exists as long as the lease of the machine
// that made it. Its create_revision is the term. This class may lead while
//
//   - it has seen the key with its own lease, and
//   - a request that renewed the lease was *sent* less than TTL − margin ago,
//     by this machine's own clock.
//
// etcd counts the TTL from a later moment, when the request arrived. So until
// this machine has stepped down the key cannot have gone, and no other machine
// can lead, if clocks run equally fast up to the margin. Clocks are not
// compared. A machine that was frozen in between is fenced: every write has the
// term as its condition. Not thread-safe.
class Membership {
 public:
  struct Settings {
    std::string machine;
    uint64_t ttl_ns = 5'000'000'000;
    uint64_t margin_ns = 1'000'000'000;
  };

  // `clock` outlives it.
  Membership(Settings settings, const Clock* clock)
      : settings_(std::move(settings)), clock_(clock) {}

  // Changes of the lease. `asked_ns`: when the request that etcd answered was
  // sent.
  void Granted(int64_t lease, uint64_t ttl_ns, uint64_t asked_ns);
  void KeptAlive(int64_t lease, uint64_t ttl_ns, uint64_t asked_ns);
  void Lapsed(int64_t lease);               // etcd has dropped it
  int64_t lease() const { return lease_; }  // 0: none
  // True if a lease should be requested (WantsLease) or renewed (WantsToRenew)
  // now.
  bool WantsLease() const { return lease_ == 0; }
  bool WantsToRenew() const;
  void AskedToRenew() { asked_ns_ = clock_->NowNs(); }

  // Takes the election as stored in etcd, in the order in which it was
  // requested; nullopt if there is no leader.
  void Saw(const absl::optional<Election>& election);
  // True if the election's key should be created now: there is no leader, this
  // machine may lead, and its lease lasts long enough to make it worthwhile.
  bool WantsToStand() const;
  // True if this machine's own key should be deleted.
  bool WantsToResign() const {
    return own_term_ != 0 && (!willing_ || own_term_ == resigned_term_);
  }
  // Call this before the request is sent: whatever happens to the request,
  // however late, this machine does not lead in that term again.
  void AskedToResign() { resigned_term_ = own_term_; }
  // Sets whether this machine may lead; a machine whose daemons do not answer
  // should not.
  void SetWilling(bool willing) { willing_ = willing; }

  // Returns the term in which this machine may lead now; 0 if it may not.
  uint64_t Term() const;
  // Returns the time until which this machine may lead unless the lease is
  // renewed.
  uint64_t LeadsUntilNs() const { return Term() == 0 ? 0 : valid_until_ns_; }
  const absl::optional<Election>& election() const { return election_; }

  // True if a majority of etcd's members answered within the last TTL.
  bool HasQuorum() const;

 private:
  void Answered() { answered_ns_ = clock_->NowNs(); }
  void Renew(uint64_t ttl_ns, uint64_t asked_ns);
  bool IsLeaseSure() const { return clock_->NowNs() < valid_until_ns_; }

  const Settings settings_;
  const Clock* const clock_;
  int64_t lease_ = 0;
  uint64_t valid_until_ns_ = 0;  // by what was confirmed, less the margin
  uint64_t asked_ns_ = 0;        // the last time that a renewal was sent
  absl::optional<uint64_t> answered_ns_;
  absl::optional<Election> election_;
  bool has_seen_ = false;       // the election, since the lease was granted
  uint64_t own_term_ = 0;       // of the key with the own lease; 0: it has none
  uint64_t resigned_term_ = 0;  // whose key it has asked etcd to delete
  bool willing_ = true;
};

}  // namespace fineserve::node

#endif  // DAEMON_NODE_MEMBERSHIP_H_
