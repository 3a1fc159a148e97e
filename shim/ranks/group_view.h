#ifndef SHIM_RANKS_GROUP_VIEW_H_
#define SHIM_RANKS_GROUP_VIEW_H_

#include <atomic>
#include <cstdint>

#include "shim/fineserve_kv.h"
#include "shim/host/plain_mutex.h"
#include "shim/ranks/group_leases.h"
#include "shim/ranks/rank.h"

namespace fineserve::shim {

// The block pool of an engine that spans GPUs, in the process that runs it:
// other processes, the ranks, have registered, mapped and activated a view each
// (EngineView). Offers what EngineView offers to an engine with its own pool.
//
// Deaths: a rank's slabs are quarantined by its daemon once all members of the
// engine on that GPU have exited, this process among them, so nothing is taken
// from ranks that still compute. A daemon that dies leaves its leases as they
// are; from then on no rank leases more.
//
// Thread-safe; only Join and Wait wait for a daemon or sleep. Functions that
// return int return FS_OK or an FS_… error with its text set.
class GroupView {
 public:
  constexpr GroupView() = default;

  bool in_use() const {
    // Acquire: pairs with the release at the end of Join.
    return in_use_.load(std::memory_order_acquire);
  }

  uint32_t ranks() const { return in_use() ? count_ : 0; }

  // True once ranks have been joined, whether or not that succeeded.
  bool engaged() const { return engaged_.load(std::memory_order_relaxed); }

  int Join(const fs_kv_rank* ranks, uint32_t count, fs_kv_geometry* geometry);
  int SlabBlocks(uint32_t view_index, uint64_t* first, uint64_t* end);
  int Poll(fs_kv_change* changes, uint32_t capacity);
  int Want(uint32_t slabs);
  int ReturnSlab(uint32_t view_index);
  int Publish(uint32_t view_index, uint32_t used_blocks);
  int Wait(int timeout_ms);
  // Makes a Wait that is in progress return 1.
  void WakeWaiter();
  // Forgets all leases, so that the ranks' views can be suspended. Until
  // Resume, which takes the leases over once all views are active again, the
  // functions above fail with FS_STATE. Suspend may be called again.
  int Suspend();
  int Resume();
  int ReadStats(fs_kv_stats* stats);

  // For a forked child: closes all descriptors and takes no lock.
  void AbandonInChild();

 private:
  int CheckAlike();
  int Open(uint32_t count, fs_kv_geometry* geometry) FINESERVE_REQUIRES(mutex_);
  int TakeAllPools() FINESERVE_REQUIRES(mutex_);
  bool Serves() const FINESERVE_REQUIRES(mutex_) {
    return in_use() && !suspended_;
  }
  void Work(uint64_t now_ms) FINESERVE_REQUIRES(mutex_);
  void Tell(uint64_t now_ms) FINESERVE_REQUIRES(mutex_);
  void Show(uint64_t now_ms) FINESERVE_REQUIRES(mutex_);
  void LookForRoom(uint64_t now_ms) FINESERVE_REQUIRES(mutex_);
  uint64_t ClosedBlocks() const FINESERVE_REQUIRES(mutex_);
  bool Untold() const FINESERVE_REQUIRES(mutex_);
  bool AllJoined() const;
  void SleepFor(uint64_t ms, const uint32_t* seen);

  std::atomic<bool> engaged_{false};
  std::atomic<bool> in_use_{false};
  Mutex mutex_;
  uint32_t count_ = 0;  // constant once in use
  Rank ranks_[GroupLeases::kMaxRanks];
  GroupLeases leases_ FINESERVE_GUARDED_BY(mutex_);
  bool want_changed_ FINESERVE_GUARDED_BY(mutex_) = false;
  uint64_t asked_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t shown_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t room_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t slab_blocks_ FINESERVE_GUARDED_BY(mutex_) = 0;  // at least
  // Blocks of the slabs that all GPUs could lease to the engine
  // (GroupLeases::Reach), and the most blocks that it can ever have.
  uint64_t sure_blocks_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t first_blocks_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t most_blocks_ FINESERVE_GUARDED_BY(mutex_) = 0;
  bool suspended_ FINESERVE_GUARDED_BY(mutex_) = false;
  uint32_t views_ FINESERVE_GUARDED_BY(mutex_) = 0;  // of all, when they joined
  std::atomic<uint32_t> wakes_{0};
};

}  // namespace fineserve::shim

#endif  // SHIM_RANKS_GROUP_VIEW_H_
