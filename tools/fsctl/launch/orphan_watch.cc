#include "tools/fsctl/launch/orphan_watch.h"

#include <unistd.h>

#include "absl/status/status.h"
#include "daemon/abi/observer_link.h"
#include "daemon/abi/old_pool.h"
#include "tools/fsctl/pool/daemon_choice.h"

namespace fineserve::fsctl {
namespace {

std::vector<pid_t> HoldersOfFormerPools(const std::string& folder) {
  std::vector<pid_t> pids;
  std::vector<absl::Status> dead;
  for (const Pool& pool : LivePools(abi::ListSockets(folder), &dead)) {
    for (const abi::OldPool& former :
         abi::FindOldPools(pool.table.gpu_uuid, pool.table.epoch)) {
      for (const abi::OldPool::Process& process : former.processes) {
        pids.push_back(process.pid);
      }
    }
  }
  return pids;
}

}  // namespace

OrphanWatch OrphanWatch::OfFolder(const std::string& folder) {
  return OrphanWatch([folder] { return HoldersOfFormerPools(folder); });
}

void OrphanWatch::Turn(uint64_t now_ns) {
  if (now_ns < due_ns_) return;
  due_ns_ = now_ns + kPeriodNs;
  groups_.clear();
  for (const pid_t pid : find_()) {
    const pid_t group = getpgid(pid);
    if (group > 0) groups_.insert(group);
  }
}

}  // namespace fineserve::fsctl
