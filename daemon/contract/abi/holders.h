#ifndef DAEMON_CONTRACT_ABI_HOLDERS_H_
#define DAEMON_CONTRACT_ABI_HOLDERS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::abi {

// A process that has one of our memfds open.
struct Holder {
  enum class Kind { kTable, kEngineScoreboard, kViewScoreboard };

  pid_t pid = 0;
  std::string comm;  // the process's short name, printable
  Kind kind = Kind::kTable;
  // "/proc/4711/fd/9". Opening it makes a new open file description.
  std::string path;
  // Identify the memfd: equal for all its holders.
  uint64_t device = 0;
  uint64_t inode = 0;
};

// Finds the processes that hold a slab table, an engine scoreboard or a view
// scoreboard, in order of pid, each memfd once per process. Processes that we
// may not inspect (other users', unless we are root) and processes that exit in
// between are skipped. Any thread.
//
// The memfd's name proves nothing, because any process can choose it: pass the
// descriptor to TableReader, ReadScoreboard or ReadViewScoreboard, which check.
std::vector<Holder> FindHolders();

// The same for one process.
std::vector<Holder> FindHolders(pid_t pid);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_HOLDERS_H_
