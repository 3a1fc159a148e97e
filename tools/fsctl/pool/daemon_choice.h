#ifndef TOOLS_FSCTL_POOL_DAEMON_CHOICE_H_
#define TOOLS_FSCTL_POOL_DAEMON_CHOICE_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/abi/table_reader.h"

namespace fineserve::fsctl {

// One GPU's pool as fsctl found it: through its daemon or, if that is dead,
// through a process that still holds the slab table.
struct Pool {
  abi::TableSnapshot table;
  std::string socket;          // empty unless the daemon answered
  pid_t holder_pid = 0;        // whom the table was read through; 0: the daemon
  bool daemon_exists = false;  // if it did not answer

  bool daemon_answers() const { return !socket.empty(); }
};

// "daemon 4711 is dead; read through engine pid 4712"; empty if it answers.
std::string DaemonTrouble(const Pool& pool);

// The runtime folder in which fsctl looks.
std::string SocketFolder();

// The pools of all daemons that answer; what the others said goes to
// `troubles`.
std::vector<Pool> LivePools(const std::vector<std::string>& sockets,
                            std::vector<absl::Status>* troubles);

// The pools of this runtime folder's former daemons that some process still
// holds a table of, each once, apart from those of `live`; of several pools of
// one GPU the youngest.
std::vector<Pool> OrphanedPools(const std::vector<Pool>& live);

// The one that `gpu` names: a UUID or the beginning of one, or a socket; empty
// if there is only one. NotFound, or InvalidArgument listing the candidates.
absl::StatusOr<Pool> Pick(const std::vector<Pool>& pools,
                          const std::string& gpu);

// All of the above. Errors carry the fix.
absl::StatusOr<Pool> ChoosePool(const std::string& gpu);

// The exit code that a failed choice stands for.
int ExitCodeOf(const absl::Status& status);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_DAEMON_CHOICE_H_
