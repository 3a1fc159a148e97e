#include "tools/up/orphan_watch.h"

#include <unistd.h>

#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "tools/fsctl/daemons/daemon_choice.h"

namespace fineserve::fsctl {
namespace {

// Searches all processes only when there can be something to find: a pool
// becomes a former one when another epoch is served, and stays one until its
// last holder is gone.
class FormerPools {
 public:
  explicit FormerPools(std::string folder) : folder_(std::move(folder)) {}

  std::vector<pid_t> Holders() {
    std::vector<absl::Status> dead;
    const std::vector<Pool> pools =
        LivePools(finding::ListSockets(folder_), &dead);
    std::set<uint64_t> epochs;
    for (const Pool& pool : pools) epochs.insert(pool.table.epoch);
    if (std::exchange(epochs_, epochs) == epochs && holders_.empty()) return {};
    holders_.clear();
    for (const Pool& pool : pools) Add(pool.table);
    return holders_;
  }

 private:
  void Add(const abi::TableSnapshot& table) {
    for (const abi::OldPool& former :
         abi::FindOldPools(table.gpu_uuid, table.epoch)) {
      for (const abi::OldPool::Process& process : former.processes) {
        holders_.push_back(process.pid);
      }
    }
  }

  const std::string folder_;
  std::set<uint64_t> epochs_;  // that were served when it last looked
  std::vector<pid_t> holders_;
};

}  // namespace

OrphanWatch OrphanWatch::OfFolder(const std::string& folder) {
  const auto pools = std::make_shared<FormerPools>(folder);
  return OrphanWatch([pools] { return pools->Holders(); });
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

std::string OrphanRoll::Next(const std::vector<Engine>& engines) {
  for (const Engine& engine : engines) {
    // Waits while any engine drains, for whatever reason, and until the last
    // orphan serves again.
    if (engine.rests) return "";
    if (engine.name == last_ && !engine.serves) return "";
  }
  last_.clear();
  for (const Engine& engine : engines) {
    if (engine.is_orphan && engine.serves) return last_ = engine.name;
  }
  return "";
}

}  // namespace fineserve::fsctl
