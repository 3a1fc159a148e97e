#ifndef DAEMON_CONTRACT_ABI_OLD_POOL_H_
#define DAEMON_CONTRACT_ABI_OLD_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::abi {

// A pool that its daemon has left, unmanaged, to the engines that map it: they
// hold its memory until they end.
struct OldPool {
  struct Process {
    pid_t pid = 0;
    bool is_member = false;  // else it inherited the descriptors
    std::string engine;      // printable
    uint64_t slabs = 0;      // of its engine
  };

  uint64_t epoch = 0;
  uint32_t daemon_pid = 0;  // the former daemon's; 0: no longer known
  uint64_t slab_bytes = 0;
  uint64_t slabs = 0;  // that the engines below hold, each counted once
  std::vector<Process> processes;

  uint64_t bytes() const { return slabs * slab_bytes; }
};

// Returns the pools of this GPU, of epochs other than `epoch`, that another
// process holds. If an engine has since joined the daemon of `epoch`, and has
// only that daemon's table, its view shows which pool it serves on.
std::vector<OldPool> FindOldPools(const uint8_t (&gpu_uuid)[16],
                                  uint64_t epoch = 0);

// Returns one line: "the pool of a former daemon (pid 4711) is still held by
// pid 4712 (engine vllm): 12 slabs, 384 MiB; …". Empty if there is no such
// pool.
std::string Describe(const std::vector<OldPool>& pools);

// Returns the number of other processes that hold such a pool.
uint32_t CountOldPoolHolders(const uint8_t (&gpu_uuid)[16], uint64_t epoch);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_OLD_POOL_H_
