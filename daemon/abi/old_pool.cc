#include "daemon/abi/old_pool.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/holders.h"
#include "daemon/abi/table_reader.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::abi {
namespace {

std::string DescribeEngine(const TableSnapshot& table, pid_t pid) {
  for (const EngineSnapshot& engine : table.engines) {
    if (std::find(engine.member_pids.begin(), engine.member_pids.end(),
                  static_cast<uint32_t>(pid)) == engine.member_pids.end()) {
      continue;
    }
    return absl::StrCat(" (engine ", engine.name, "): ", engine.slabs_held,
                        " slabs, ",
                        SizeText(engine.slabs_held * table.slab_bytes()));
  }
  return " (not a member: it inherited the descriptors)";
}

// Calls `found` with each old pool that a process holds, and that process.
void ForEachHolder(const uint8_t (&gpu_uuid)[16], uint64_t epoch,
                   absl::FunctionRef<void(const TableSnapshot&, pid_t)> found) {
  for (const Holder& holder : FindHolders()) {
    if (holder.kind != Holder::Kind::kTable || holder.pid == getpid()) {
      continue;
    }
    const driver::Descriptor fd(
        open(holder.path.c_str(), O_RDONLY | O_CLOEXEC));
    const absl::StatusOr<TableSnapshot> table = ReadTable(fd.get());
    if (!table.ok() || table->epoch == epoch ||
        memcmp(table->gpu_uuid, gpu_uuid, 16) != 0) {
      continue;
    }
    found(*table, holder.pid);
  }
}

}  // namespace

std::string DescribeOldPool(const uint8_t (&gpu_uuid)[16], uint64_t epoch) {
  std::map<uint32_t, std::vector<std::string>> by_daemon;
  ForEachHolder(gpu_uuid, epoch, [&](const TableSnapshot& table, pid_t pid) {
    by_daemon[table.daemon_pid].push_back(
        absl::StrCat("pid ", pid, DescribeEngine(table, pid)));
  });
  std::vector<std::string> pools;
  for (const auto& [daemon, holders] : by_daemon) {
    pools.push_back(absl::StrCat("the pool of a former daemon (pid ", daemon,
                                 ") is still held by ",
                                 absl::StrJoin(holders, ", ")));
  }
  return absl::StrJoin(pools, "; ");
}

uint32_t CountOldPoolHolders(const uint8_t (&gpu_uuid)[16], uint64_t epoch) {
  std::set<pid_t> holders;
  ForEachHolder(gpu_uuid, epoch, [&](const TableSnapshot& table, pid_t pid) {
    holders.insert(pid);
  });
  return static_cast<uint32_t>(holders.size());
}

}  // namespace fineserve::abi
