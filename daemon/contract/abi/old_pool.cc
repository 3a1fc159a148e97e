#include "daemon/contract/abi/old_pool.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/holders.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "daemon/contract/abi/table_reader.h"
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

// A pool, and the ids of the engines whose slabs have been counted.
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
                            "): ", process.slabs,
                            process.slabs == 1 ? " slab, " : " slabs, ",
                            SizeText(process.slabs * pool.slab_bytes))
             : absl::StrCat("pid ", process.pid,
                            " (not a member: it inherited the descriptors)");
}

// The processes on this machine that hold pools of one GPU.
class Holdings {
 public:
  Holdings(const uint8_t (&gpu_uuid)[16], uint64_t epoch) : epoch_(epoch) {
    for (const Holder& holder : FindHolders()) {
      const driver::Descriptor fd(
          open(holder.path.c_str(), O_RDONLY | O_CLOEXEC));
      if (holder.kind == Holder::Kind::kTable) {
        TakeTable(holder.pid, ReadTable(fd.get()), gpu_uuid);
      } else if (holder.kind == Holder::Kind::kViewScoreboard) {
        TakeView(holder.pid, ReadViewScoreboard(fd.get()));
      }
    }
    for (const auto& [pid, view] : views_) AddRejoined(pid, view);
  }

  std::vector<OldPool> TakePools() {
    std::vector<OldPool> pools;
    for (auto& [number, counted] : by_epoch_) {
      pools.push_back(std::move(counted.pool));
    }
    return pools;
  }

 private:
  void TakeTable(pid_t pid, const absl::StatusOr<TableSnapshot>& table,
                 const uint8_t (&gpu_uuid)[16]) {
    if (!table.ok()) return;
    if (table->daemon_pid == static_cast<uint32_t>(pid)) {
      served_.insert(table->epoch);
    }
    if (pid == getpid() || memcmp(table->gpu_uuid, gpu_uuid, 16) != 0) return;
    if (table->epoch != epoch_) {
      Add(*table, pid, &by_epoch_[table->epoch]);
    } else if (const EngineSnapshot* engine = EngineOf(*table, pid)) {
      joined_[pid] = engine->name;
      slab_bytes_ = table->slab_bytes();
    }
  }

  void TakeView(pid_t pid, absl::StatusOr<ViewScoreboardSnapshot> view) {
    if (view.ok() && view->epoch != epoch_) {
      views_.emplace_back(pid, *std::move(view));
    }
  }

  // Adds a member of the present pool whose view belongs to a pool that no
  // daemon serves.
  void AddRejoined(pid_t pid, const ViewScoreboardSnapshot& view) {
    const auto joined = joined_.find(pid);
    if (joined == joined_.end() || served_.count(view.epoch) > 0) return;
    OldPool& pool = by_epoch_[view.epoch].pool;
    pool.epoch = view.epoch;
    if (pool.slab_bytes == 0) pool.slab_bytes = slab_bytes_;
    const uint64_t slabs = view.linked_slabs + view.leaving_slabs;
    pool.slabs += slabs;
    pool.processes.push_back({pid, true, joined->second, slabs});
  }

  const uint64_t epoch_;
  uint64_t slab_bytes_ = 0;    // of the present pool
  std::set<uint64_t> served_;  // epochs of living daemons
  std::map<uint64_t, Counted> by_epoch_;
  std::map<pid_t, std::string> joined_;  // members of the present pool
  std::vector<std::pair<pid_t, ViewScoreboardSnapshot>> views_;  // of others
};

}  // namespace

std::vector<OldPool> FindOldPools(const uint8_t (&gpu_uuid)[16],
                                  uint64_t epoch) {
  return Holdings(gpu_uuid, epoch).TakePools();
}

std::string Describe(const std::vector<OldPool>& pools) {
  return absl::StrJoin(pools, "; ", [](std::string* out, const OldPool& pool) {
    absl::StrAppend(
        out, "the pool of a former daemon",
        pool.daemon_pid == 0 ? ""
                             : absl::StrCat(" (pid ", pool.daemon_pid, ")"),
        " is still held by ",
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
