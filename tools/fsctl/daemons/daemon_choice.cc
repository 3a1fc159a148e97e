#include "tools/fsctl/daemons/daemon_choice.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/abi/holders.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

absl::StatusOr<Pool> ReadThroughDaemon(const std::string& socket) {
  absl::StatusOr<abi::ObserverLink> link = abi::ConnectObserver(socket);
  if (!link.ok()) return link.status();
  absl::StatusOr<abi::TableSnapshot> table = abi::ReadTable(link->table.get());
  if (!table.ok()) return table.status();
  return Pool{*std::move(table), socket};
}

// The pid may have been reused, so the name must match too.
bool IsDaemon(uint32_t pid) {
  return ReadFile(absl::StrCat("/proc/", pid, "/comm")) == "fineserved\n";
}

absl::StatusOr<Pool> ReadThroughHolder(const abi::Holder& holder) {
  const absl::StatusOr<driver::Descriptor> fd = OpenHeld(holder);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<abi::TableSnapshot> table = abi::ReadTable(fd->get());
  if (!table.ok()) return table.status();
  Pool pool{*std::move(table), "", holder.pid};
  pool.daemon_exists = IsDaemon(pool.table.daemon_pid);
  return pool;
}

// True if the pool's daemon used this runtime folder: a daemon leaves its lock
// file behind.
bool WasServedHere(const Pool& pool) {
  char socket[abi::kPathBytes];
  return abi::SocketPath(finding::RuntimeFolder().c_str(), pool.table.gpu_uuid,
                         socket) &&
         access(absl::StrCat(socket, abi::kLockSuffix).c_str(), F_OK) == 0;
}

bool SameGpu(const Pool& a, const Pool& b) {
  return std::equal(std::begin(a.table.gpu_uuid), std::end(a.table.gpu_uuid),
                    std::begin(b.table.gpu_uuid));
}

// Keeps the youngest pool of each GPU, as read through the first of its
// holders.
void KeepYoungest(Pool pool, std::vector<Pool>* pools) {
  for (Pool& other : *pools) {
    if (!SameGpu(pool, other)) continue;
    if (pool.table.started_ns > other.table.started_ns) other = std::move(pool);
    return;
  }
  pools->push_back(std::move(pool));
}

bool Matches(const Pool& pool, const std::string& gpu) {
  if (finding::IsSocketPath(gpu)) return pool.socket == gpu;
  return finding::MeansGpu(gpu, GpuName(pool.table.gpu_uuid));
}

std::string Describe(const Pool& pool) {
  return absl::StrCat(GpuName(pool.table.gpu_uuid), " (", pool.table.gpu_name,
                      ", daemon ", pool.table.daemon_pid, ")");
}

std::string DescribeAll(const std::vector<Pool>& pools) {
  return absl::StrJoin(pools, ", ", [](std::string* out, const Pool& pool) {
    out->append(Describe(pool));
  });
}

absl::Status NoDaemon(const std::string& place,
                      const std::vector<absl::Status>& troubles) {
  // A stale socket counts as an empty folder.
  for (const absl::Status& trouble : troubles) {
    if (!absl::IsUnavailable(trouble) && !absl::IsNotFound(trouble)) {
      return trouble;
    }
  }
  // There may be a daemon in a folder that this user cannot read.
  if (euidaccess(place.c_str(), F_OK) == 0 &&
      euidaccess(place.c_str(), R_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        place,
        " belongs to another user, whose daemon may serve there; run "
        "this as that user, or set FINESERVE_RUNTIME_DIR"));
  }
  return absl::NotFoundError(
      absl::StrCat("no fineserved is running (looked in ", place,
                   "); start one: fineserved --gpu 0 --pool 16GiB"));
}

}  // namespace

std::string DaemonTrouble(const Pool& pool) {
  if (pool.daemon_answers()) return "";
  const uint32_t daemon = pool.table.daemon_pid;
  const bool itself = static_cast<uint32_t>(pool.holder_pid) == daemon;
  return absl::StrCat("daemon ", daemon,
                      pool.daemon_exists ? " does not answer; read through "
                                         : " is dead; read through ",
                      itself ? "its own " : "", "pid ", pool.holder_pid);
}

absl::Status NeedsDaemon(const Pool& pool) {
  return absl::NotFoundError(
      absl::StrCat("daemon ", pool.table.daemon_pid,
                   pool.daemon_exists
                       ? " does not answer; wait, or see its log and restart it"
                       : " is dead; start fineserved again (engines go on)"));
}

std::vector<Pool> LivePools(const std::vector<std::string>& sockets,
                            std::vector<absl::Status>* troubles) {
  std::vector<Pool> pools;
  for (const std::string& socket : sockets) {
    absl::StatusOr<Pool> pool = ReadThroughDaemon(socket);
    if (pool.ok()) {
      pools.push_back(*std::move(pool));
    } else {
      troubles->push_back(pool.status());
    }
  }
  return pools;
}

std::vector<Pool> OrphanedPools(const std::vector<Pool>& live) {
  std::vector<Pool> pools;
  for (const abi::Holder& holder : abi::FindHolders()) {
    if (holder.kind != abi::Holder::Kind::kTable) continue;
    absl::StatusOr<Pool> pool = ReadThroughHolder(holder);
    if (!pool.ok() || !WasServedHere(*pool)) continue;
    const bool has_daemon =
        std::any_of(live.begin(), live.end(),
                    [&](const Pool& other) { return SameGpu(*pool, other); });
    if (!has_daemon) KeepYoungest(*std::move(pool), &pools);
  }
  return pools;
}

std::vector<Pool> AllPools(std::vector<absl::Status>* troubles) {
  std::vector<Pool> pools =
      LivePools(finding::ListSockets(finding::RuntimeFolder()), troubles);
  for (Pool& orphan : OrphanedPools(pools)) pools.push_back(std::move(orphan));
  return pools;
}

absl::StatusOr<Pool> Pick(const std::vector<Pool>& pools,
                          const std::string& gpu) {
  std::vector<Pool> fitting;
  for (const Pool& pool : pools) {
    if (Matches(pool, gpu)) fitting.push_back(pool);
  }
  if (fitting.size() == 1) return fitting[0];
  if (fitting.empty()) {
    return absl::NotFoundError(
        pools.empty() ? "no pool"
                      : absl::StrCat("no pool for --gpu ", gpu,
                                     "; pools found: ", DescribeAll(pools)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(gpu.empty() ? "several daemons are running"
                               : absl::StrCat("several GPUs match ", gpu),
                   "; choose one with --gpu: ", DescribeAll(fitting)));
}

absl::StatusOr<Pool> ChoosePool(const std::string& gpu) {
  std::vector<absl::Status> troubles;
  const std::vector<Pool> live =
      LivePools(finding::ListSockets(finding::RuntimeFolder(), gpu), &troubles);
  absl::StatusOr<Pool> pool = Pick(live, gpu);
  if (pool.ok() || !absl::IsNotFound(pool.status())) return pool;
  if (finding::IsSocketPath(gpu)) return NoDaemon(gpu, troubles);
  const std::vector<Pool> orphaned = OrphanedPools(live);
  absl::StatusOr<Pool> orphan = Pick(orphaned, gpu);
  if (orphan.ok() || !absl::IsNotFound(orphan.status())) return orphan;
  if (!live.empty()) return pool;
  return orphaned.empty() ? NoDaemon(finding::RuntimeFolder(), troubles)
                          : orphan.status();
}

absl::StatusOr<Pool> ChooseAnsweringPool(const std::string& gpu) {
  absl::StatusOr<Pool> pool = ChoosePool(gpu);
  if (pool.ok() && !pool->daemon_answers()) return NeedsDaemon(*pool);
  return pool;
}

absl::StatusOr<std::vector<Pool>> ChooseAnsweringPools(const std::string& gpu) {
  if (gpu.empty()) {
    std::vector<absl::Status> troubles;
    std::vector<Pool> live =
        LivePools(finding::ListSockets(finding::RuntimeFolder()), &troubles);
    if (live.size() > 1) return live;
  }
  absl::StatusOr<Pool> pool = ChooseAnsweringPool(gpu);
  if (!pool.ok()) return pool.status();
  return std::vector<Pool>{*std::move(pool)};
}

int ExitCodeOf(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitNoDaemon;
}

int FailWithoutPool(const absl::Status& status) {
  return Fail(ExitCodeOf(status), status);
}

using Json = nlohmann::ordered_json;

std::string FormerPoolsText(const std::vector<abi::OldPool>& pools) {
  if (pools.empty()) return "";
  return absl::StrCat(abi::Describe(pools),
                      "; it is no part of this pool. fsctl up restarts its own "
                      "engines, one after another; restart the others");
}

Json FormerPoolsJson(const std::vector<abi::OldPool>& pools) {
  Json list = Json::array();
  for (const abi::OldPool& pool : pools) {
    Json processes = Json::array();
    for (const abi::OldPool::Process& process : pool.processes) {
      processes.push_back(
          {{"pid", process.pid},
           {"engine", process.is_member ? Json(process.engine) : Json()},
           {"slabs", process.slabs},
           {"bytes", process.slabs * pool.slab_bytes}});
    }
    list.push_back({{"daemon_pid", pool.daemon_pid},
                    {"slabs", pool.slabs},
                    {"bytes", pool.bytes()},
                    {"processes", processes}});
  }
  return list;
}

}  // namespace fineserve::fsctl
