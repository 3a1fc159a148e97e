#ifndef TOOLS_FSCTL_DAEMONS_DAEMON_CHOICE_H_
#define TOOLS_FSCTL_DAEMONS_DAEMON_CHOICE_H_

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/abi/table_reader.h"

namespace fineserve::fsctl {

// One GPU's pool as fsctl found it: through its daemon or, if that is dead,
// through a process that still holds the slab table.
struct Pool {
  abi::TableSnapshot table;
  std::string socket;          // empty unless the daemon answered
  pid_t holder_pid = 0;        // that the table was read through; 0: the daemon
  bool daemon_exists = false;  // if it did not answer

  bool daemon_answers() const { return !socket.empty(); }
};

// "daemon 4711 is dead; read through pid 4712"; empty if it answers.
std::string DaemonTrouble(const Pool& pool);
// Returns NotFound, which says what has become of this pool's daemon, and what
// to do. For tasks that need a daemon that answers.
absl::Status NeedsDaemon(const Pool& pool);

// Returns the pools of all daemons that answer, and adds the errors of the
// other daemons to `troubles`.
std::vector<Pool> LivePools(const std::vector<std::string>& sockets,
                            std::vector<absl::Status>* troubles);

// Returns the pools of former daemons of this runtime folder whose table some
// process still holds, each once, without the GPUs of `live`. If a GPU has
// several such pools, only the youngest.
std::vector<Pool> OrphanedPools(const std::vector<Pool>& live);

// Returns all pools of this machine: those whose daemon answers, then orphaned
// ones. Reports errors as LivePools does.
std::vector<Pool> AllPools(std::vector<absl::Status>* troubles);

// Returns the pool that `gpu` names by a UUID, a prefix of one, or a socket; if
// `gpu` is empty, the only pool. NotFound, or InvalidArgument with the
// candidates.
absl::StatusOr<Pool> Pick(const std::vector<Pool>& pools,
                          const std::string& gpu);

// Finds the pools and picks one. Errors say what to do.
absl::StatusOr<Pool> ChoosePool(const std::string& gpu);
// Finds the pools and picks one whose daemon answers; otherwise returns
// NeedsDaemon's error.
absl::StatusOr<Pool> ChooseAnsweringPool(const std::string& gpu);
// Returns all pools whose daemons answer, if `gpu` is empty and there are
// several; otherwise the chosen one.
absl::StatusOr<std::vector<Pool>> ChooseAnsweringPools(const std::string& gpu);

// Returns the exit code for an error of ChoosePool.
int ExitCodeOf(const absl::Status& status);
// Prints an error of ChoosePool and returns its exit code.
int FailWithoutPool(const absl::Status& status);

// Orphans: engines that still serve in the pool of a daemon that has ended,
// beside the pool that is shown.

// Returns one line with what to do; empty if there are no such pools.
std::string FormerPoolsText(const std::vector<abi::OldPool>& pools);
nlohmann::ordered_json FormerPoolsJson(const std::vector<abi::OldPool>& pools);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_DAEMON_CHOICE_H_
