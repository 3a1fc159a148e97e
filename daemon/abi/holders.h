#ifndef DAEMON_ABI_HOLDERS_H_
#define DAEMON_ABI_HOLDERS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::abi {

// A process that has one of our memfds open.
struct Holder {
  enum class Kind { kTable, kPage, kView };

  pid_t pid = 0;
  std::string comm;  // the process's short name, printable
  Kind kind = Kind::kTable;
  // "/proc/4711/fd/9". Opening it gives a description of its own.
  std::string path;
  // Which memfd: equal in all holders of the same one.
  uint64_t device = 0;
  uint64_t inode = 0;
};

// Finds the processes that hold a slab table, an engine scoreboard or a view
// scoreboard, in order of pid, each memfd once per process. Processes that we
// may not look into (other users', unless we are root) or that exit meanwhile
// are skipped. Any thread.
//
// The name alone proves nothing, anybody may choose it: hand the descriptor to
// TableReader, ReadScoreboard or ReadViewScoreboard, which check.
std::vector<Holder> FindHolders();

// The same for one process.
std::vector<Holder> FindHolders(pid_t pid);

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_HOLDERS_H_
