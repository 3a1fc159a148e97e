#ifndef TOOLS_FSCTL_UPGRADE_HANDOVER_H_
#define TOOLS_FSCTL_UPGRADE_HANDOVER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/fsctl/terminal/finding.h"
#include "tools/fsctl/upgrade/serving_daemon.h"

namespace fineserve::fsctl {

// The engine scoreboard (the memfd's inode) of each process at some moment, by
// pid. A process gets a new scoreboard with each connection.
using Links = std::map<uint32_t, uint64_t>;
// Returns the links of all engines' processes. A process that this user may not
// inspect is left out.
Links LinksOf(const abi::TableSnapshot& table);

// The processes that have joined the daemon since the links were read, and
// those that have not.
struct Joining {
  uint32_t joined = 0;
  // Processes with a view, which should have joined by themselves but have not:
  // "pid 4711 (engine chat)".
  std::vector<std::string> missing;
  // Number of processes that join when they next ask for whole slabs, or when
  // they are continued.
  uint32_t later = 0;
};
Joining JoinedSince(const Links& before, const abi::TableSnapshot& table);

// A pool as one daemon serves it, and the socket at which the next daemon will
// serve it.
struct ServedPool {
  std::string socket;
  abi::TableSnapshot table;
  Links links;
};

// Outcome of a change of daemons.
struct Handover {
  pid_t daemon = 0;      // that serves now; 0: none does
  double silent_ms = 0;  // without a serving daemon
  bool same_pool = true;
  Findings checks;
};

// Makes the keeper of `daemon` start the program that is at its path now, and
// waits until that serves. Then checks that the new daemon has adopted every
// lease, that every engine has joined it again, and that it leases slabs. Each
// step takes at most `timeout`. If `is_way_back`, an engine that has not joined
// again only causes a warning.
Handover HandOver(const ServingDaemon& daemon, const ServedPool& pool,
                  bool is_way_back, absl::Duration timeout);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_HANDOVER_H_
