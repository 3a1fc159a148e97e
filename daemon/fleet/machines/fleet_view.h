#ifndef DAEMON_FLEET_MACHINES_FLEET_VIEW_H_
#define DAEMON_FLEET_MACHINES_FLEET_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/contract/wire/connection_watch.h"

namespace fineserve::cluster {

// A GPU's daemon, as registered by its machine.
struct DaemonRecord {
  std::string gpu;  // UUID
  uint16_t port = 0;
  bool answers = false;
  uint64_t memory_bytes = 0;  // of the device
  uint64_t pool_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t plan_term = 0;
  uint64_t plan_number = 0;
  uint32_t engines = 0;            // that serve
  uint32_t proxies = 0;            // that greet it
  wire::FaultCounts refused = {};  // connections of other machines
  uint64_t plans_refused = 0;      // that were too old
};

// A machine as it registers itself in etcd, under a lease.
struct MachineRecord {
  std::string name;
  std::string host;
  std::string instance;  // of its fineserve-node: drawn at its start
  std::string key;       // public
  std::vector<DaemonRecord> daemons;
};
std::string RecordText(const MachineRecord& record);
absl::StatusOr<MachineRecord> ParseRecord(absl::string_view text);

// A machine as this one's node sees it.
struct SeenMachine {
  MachineRecord record;  // the last one; of a machine never seen the name alone
  bool is_alive = false;
  bool is_lost = false;    // for so long that its models go elsewhere
  uint64_t silent_ns = 0;  // CLOCK_MONOTONIC here: since then; 0: it is not
};

// The fleet as this machine's fineserve-node sees it, for fsctl and for the
// daemons: the file cluster.json in the runtime folder, written twice a second.
struct FleetView {
  std::string machine;  // this one
  std::string fleet_path;
  std::string leader;  // a machine's name; empty: there is no leader
  uint64_t term = 0;
  bool has_quorum = false;
  uint64_t written_ns = 0;   // CLOCK_MONOTONIC
  uint64_t quorum_ns = 0;    // when etcd answered last
  uint64_t plan_number = 0;  // that etcd has
  uint64_t strangers = 0;    // answers of another etcd
  uint64_t fenced = 0;       // plans that etcd refused, as their term was over
  std::string trouble;       // in one line with the fix; empty: none
  std::vector<SeenMachine> machines;
};
absl::Status WriteView(const std::string& folder, const FleetView& view);
// Reads the view. NotFound if there is none: the fleet has one machine, or its
// node has never run.
absl::StatusOr<FleetView> ReadView(const std::string& folder);

// Says why the fleet is not planned now, in one line with the fix, by this
// machine's view; empty if nothing is wrong.
std::string TroubleOf(const absl::StatusOr<FleetView>& view, uint64_t now_ns);
// Returns the CLOCK_MONOTONIC time of the trouble's first sign; 0 if it is not
// known.
uint64_t TroubleSince(const absl::StatusOr<FleetView>& view, uint64_t now_ns);

// A finding that an operator should look into although the fleet is planned,
// with its cure: strangers who try to connect, changed bytes, plans of a leader
// that was suspended.
struct Oddity {
  std::string what;
  std::string cure;
};
// Returns the oddities seen on `machine`; on all machines if it is empty.
std::vector<Oddity> OdditiesOf(const FleetView& view,
                               const std::string& machine);

}  // namespace fineserve::cluster

#endif  // DAEMON_FLEET_MACHINES_FLEET_VIEW_H_
