#include "daemon/abi/old_pool.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/holders.h"
#include "daemon/abi/table_reader.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::abi {
namespace {

const EngineSnapshot* EngineOf(const TableSnapshot& table, pid_t pid) {
  for (const EngineSnapshot& engine : table.engines) {
    if (std::find(engine.member_pids.begin(), engine.member_pids.end(),
                  static_cast<uint32_t>(pid)) != engine.member_pids.end()) {
      return &engine;
    }
  }
  return nullptr;
}

// A pool, and the engines that were counted.
struct Counted {
  OldPool pool;
  std::set<uint32_t> engines;
};

void Add(const TableSnapshot& table, pid_t pid, Counted* counted) {
  OldPool& pool = counted->pool;
  pool.epoch = table.epoch;
  pool.daemon_pid = table.daemon_pid;
  pool.slab_bytes = table.slab_bytes();
  OldPool::Process process;
  process.pid = pid;
  if (const EngineSnapshot* engine = EngineOf(table, pid)) {
    process.is_member = true;
    process.engine = engine->name;
    process.slabs = engine->slabs_held;
    if (counted->engines.insert(engine->id).second) {
      pool.slabs += engine->slabs_held;
    }
  }
  pool.processes.push_back(std::move(process));
}

std::string DescribeProcess(const OldPool& pool,
                            const OldPool::Process& process) {
  return process.is_member
             ? absl::StrCat("pid ", process.pid, " (engine ", process.engine,
                            "): ", process.slabs, " slabs, ",
                            SizeText(process.slabs * pool.slab_bytes))
             : absl::StrCat("pid ", process.pid,
                            " (not a member: it inherited the descriptors)");
}

}  // namespace

std::vector<OldPool> FindOldPools(const uint8_t (&gpu_uuid)[16],
                                  uint64_t epoch) {
  std::map<uint64_t, Counted> by_epoch;
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
    Add(*table, holder.pid, &by_epoch[table->epoch]);
  }
  std::vector<OldPool> pools;
  for (auto& [number, counted] : by_epoch) {
    pools.push_back(std::move(counted.pool));
  }
  return pools;
}

std::string Describe(const std::vector<OldPool>& pools) {
  return absl::StrJoin(pools, "; ", [](std::string* out, const OldPool& pool) {
    absl::StrAppend(
        out, "the pool of a former daemon (pid ", pool.daemon_pid,
        ") is still held by ",
        absl::StrJoin(pool.processes, ", ",
                      [&](std::string* text, const auto& process) {
                        text->append(DescribeProcess(pool, process));
                      }));
  });
}

uint32_t CountOldPoolHolders(const uint8_t (&gpu_uuid)[16], uint64_t epoch) {
  std::set<pid_t> holders;
  for (const OldPool& pool : FindOldPools(gpu_uuid, epoch)) {
    for (const OldPool::Process& process : pool.processes) {
      holders.insert(process.pid);
    }
  }
  return static_cast<uint32_t>(holders.size());
}

}  // namespace fineserve::abi
