#ifndef TOOLS_FSCTL_STATUS_STATUS_INPUT_H_
#define TOOLS_FSCTL_STATUS_STATUS_INPUT_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fleet/config/fleet_description.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/status/full_disks.h"
#include "tools/fsctl/terminal/finding.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

// A pool whose daemon answers.
struct LivePool {
  abi::TableSnapshot table;
  // Says which engines serve in a former pool of its GPU; empty if none.
  std::string former;
};

// A pool whose daemon does not answer.
struct OrphanedPool {
  abi::TableSnapshot table;
  // True if the daemon's process exists but hangs.
  bool daemon_exists = false;
  std::string whereabouts = {};  // of that process, in a sentence
};

// The report of a daemon that has a fleet about requests and the plan.
struct DaemonWord {
  std::string gpu;
  absl::optional<wire::ModelsT> models;   // none: it did not answer
  absl::optional<wire::PlanStateT> plan;  // none: it did not answer
  // CLOCK_MONOTONIC times of the daemon's answers, to which the ages in them
  // refer. 0: just now.
  uint64_t heard_ns = {};
  uint64_t plan_heard_ns = {};
};

// A fleet that a process runs, and the present state of its file.
struct FleetOnDisk {
  std::string path;
  std::string error;  // why it cannot be read; empty: it can
  config::FleetDescription fleet;
  std::string proxy = {};       // where its proxy is to listen
  bool starts_engines = false;  // some have a command
  double changed_s = -1;        // since the file was written last
};

// The whole input of `fsctl status`.
struct StatusInput {
  Moment now;
  std::vector<LivePool> pools;
  // Says why this user cannot see whether a daemon runs; empty if the user can.
  std::string closed;
  std::vector<std::string> dead_daemons;  // sockets without one, and why
  std::vector<OrphanedPool> orphans;
  // The scoreboard of the shim in each process.
  std::vector<abi::ScoreboardSnapshot> scoreboards;
  FoundProcesses found;
  // For each process that does not answer, by process id: where it hangs, in a
  // sentence.
  std::map<pid_t, std::string> whereabouts;
  std::vector<DaemonWord> words;
  std::vector<FleetOnDisk> fleets;
  std::vector<FullDisk> full_disks;
  // The fleet's machines if this machine is one of several; NotFound if it is
  // alone.
  absl::StatusOr<cluster::FleetView> machines = absl::NotFoundError("alone");
};

// Returns the present age of a fact that was `age_s` old when it was reported,
// at `heard_ns`: fsctl may have waited for another process since then. Negative
// if unknown.
inline double AgeNow(const Moment& now, uint64_t heard_ns, double age_s) {
  if (age_s < 0 || heard_ns == 0) return age_s;
  return age_s + std::max(0.0, SecondsSince(now.monotonic_ns, heard_ns));
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_STATUS_INPUT_H_
