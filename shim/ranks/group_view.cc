#include "shim/ranks/group_view.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/contract/abi/block_range.h"
#include "shim/link/seqpacket.h"
#include "shim/view/kv_error.h"
#include "shim/view/view_state.h"

namespace fineserve::shim {
namespace {

using GroupHold = GroupLeases::Hold;

// Interval at which an engine that waits for slabs looks at the tables: a table
// wakes it only for its own slabs, not for those of other engines. Heuristic.
constexpr uint64_t kLookMs = 5;
// Maximum age of the figures on the view scoreboards.
constexpr uint64_t kShowMs = 5;
// Interval at which it counts the slabs that all pools could lease to it, which
// requires a look at each slab of each pool. Heuristic.
constexpr uint64_t kRoomMs = 20;

// Returns the number of blocks of the slab that holds the fewest.
uint64_t LeastBlocks(const abi::RunPoolAnswer& answer, uint32_t views) {
  uint64_t least = UINT64_MAX;
  for (uint32_t v = 1; v <= views; ++v) {
    least = std::min(
        least,
        abi::BlocksOfView(v, answer.plane_bytes, answer.page_bytes).size());
  }
  return least;
}

int NoGroup() {
  return KvError(FS_STATE,
                 "this process has not joined an engine's ranks, or "
                 "their views are suspended");
}

}  // namespace

int GroupView::Join(const fs_kv_rank* ranks, uint32_t count,
                    fs_kv_geometry* geometry) {
  const MutexLock lock(&mutex_);
  if (in_use()) {
    return KvError(FS_STATE, "this process has already joined its ranks");
  }
  if (count == 0 || count > GroupLeases::kMaxRanks) {
    return KvError(FS_INVALID, "count is %u, not 1 to %u", count,
                   GroupLeases::kMaxRanks);
  }
  engaged_.store(true, std::memory_order_relaxed);
  for (count_ = 0; count_ < count; ++count_) {
    if (const int failed = ranks_[count_].Join(ranks[count_])) return failed;
  }
  if (const int bad = CheckAlike()) return bad;
  if (const int failed = Open(count, geometry)) return failed;
  views_ = geometry->slab_count;
  // Release: pairs with in_use().
  in_use_.store(true, std::memory_order_release);
  return FS_OK;
}

// Checks that the same block ids are in the same slabs on all GPUs.
int GroupView::CheckAlike() {
  const abi::RunPoolAnswer& first = ranks_[0].answer();
  for (uint32_t r = 1; r < count_; ++r) {
    const abi::RunPoolAnswer& other = ranks_[r].answer();
    const uint32_t slabs = std::min(first.slabs, other.slabs);
    for (uint32_t v = 1; v <= slabs; ++v) {
      const auto a = abi::BlocksOfView(v, first.plane_bytes, first.page_bytes);
      const auto b = abi::BlocksOfView(v, other.plane_bytes, other.page_bytes);
      if (a.first == b.first && a.end == b.end) continue;
      return KvError(
          FS_REFUSED,
          "slabs of rank 0 and rank %u hold different blocks (%lu "
          "and %lu): give the fineserved of all GPUs the same --slab",
          r, a.size(), b.size());
    }
  }
  return FS_OK;
}

int GroupView::Open(uint32_t count, fs_kv_geometry* geometry) {
  GroupLeases::Place places[GroupLeases::kMaxRanks];
  uint32_t views = UINT32_MAX;
  uint32_t floor = 0;
  uint32_t cap = UINT32_MAX;
  for (uint32_t r = 0; r < count; ++r) {
    const abi::RunPoolAnswer& answer = ranks_[r].answer();
    places[r] = {&ranks_[r].leases(), &ranks_[r].sight(), &ranks_[r].shown(),
                 ranks_[r].engine(), answer.engine_slot};
    views = std::min(views, answer.slabs);
    floor = std::max(floor, answer.floor_slabs);
    cap = std::min(cap, answer.cap_slabs);
  }
  if (floor > views) {
    return KvError(FS_REFUSED,
                   "the floor of %u slabs does not fit into the %u that all "
                   "GPUs have",
                   floor, views);
  }
  const auto seed = static_cast<uint32_t>(getpid());
  if (!leases_.Open(places, count, views, cap, seed)) {
    return KvError(FS_NO_MEMORY, "there is too little host memory");
  }
  leases_.Want(floor);
  want_changed_ = true;
  slab_blocks_ = LeastBlocks(ranks_[0].answer(), views);
  room_ms_ = 0;
  geometry->slab_count = views;
  geometry->blocks = 0;
  geometry->plane_bytes = ranks_[0].answer().plane_bytes;
  geometry->floor_slabs = floor;
  geometry->cap_slabs = std::max(floor, std::min(cap, views));
  Work(NowMs());
  return FS_OK;
}

int GroupView::SlabBlocks(uint32_t view_index, uint64_t* first, uint64_t* end) {
  const abi::RunPoolAnswer& answer = ranks_[0].answer();
  const MutexLock lock(&mutex_);
  if (view_index > leases_.views()) {
    return KvError(FS_INVALID, "view_index is %u, not 0 to %u", view_index,
                   leases_.views());
  }
  const abi::BlockRange range =
      abi::BlocksOfView(view_index, answer.plane_bytes, answer.page_bytes);
  *first = range.first;
  *end = range.end;
  return FS_OK;
}

// Looks at the tables, decides, and sends the changes. This is cheap if nothing
// has changed, since an engine does it in every step.
void GroupView::Work(uint64_t now_ms) {
  bool changed = leases_.count(GroupHold::kGiven) > 0;
  for (uint32_t r = 0; r < count_; ++r) {
    changed = changed || ranks_[r].leases().Changed();
  }
  if (changed) {
    for (uint32_t r = 0; r < count_; ++r) ranks_[r].leases().Look();
    leases_.Look();
  }
  if (changed || leases_.wants_more() || want_changed_) {
    for (uint32_t r = 0; r < count_; ++r) ranks_[r].LookAtPool();
    if (AllJoined()) {
      leases_.Plan(now_ms);
    } else {
      leases_.Rest();
    }
    want_changed_ = false;
  }
  Tell(now_ms);
  Show(now_ms);
}

// Publishes the figures on the view scoreboard of each GPU, for its daemon and
// fsctl.
void GroupView::Show(uint64_t now_ms) {
  if (now_ms - shown_ms_ < kShowMs) return;
  shown_ms_ = now_ms;
  if (now_ms - room_ms_ >= kRoomMs) LookForRoom(now_ms);
  for (uint32_t r = 0; r < count_; ++r) {
    ViewGauges gauges;
    const PoolSight::Sure sure = leases_.SureBeside(r);
    gauges.sure_blocks = std::min(sure_blocks_, sure.blocks);
    gauges.first_blocks = std::min(first_blocks_, sure.first_blocks);
    // For an engine on one GPU, the daemon knows this figure better.
    gauges.most_blocks = count_ == 1 ? 0 : most_blocks_;
    gauges.used_blocks = ranks_[r].SumUsed();
    gauges.linked_slabs = leases_.count(GroupHold::kHeld);
    gauges.leaving_slabs =
        leases_.count(GroupHold::kAsked) + leases_.count(GroupHold::kLeaving);
    gauges.returned_slabs = ranks_[r].returned_slabs();
    ranks_[r].Show(gauges);
  }
}

// Computes the blocks that are in reach. If one of the daemons is lost, the
// engine gets no slabs beyond those that it has.
void GroupView::LookForRoom(uint64_t now_ms) {
  room_ms_ = now_ms;
  for (uint32_t r = 0; r < count_; ++r) ranks_[r].LookAtPool();
  const GroupLeases::Reach reach =
      AllJoined() ? leases_.CountReach()
                  : GroupLeases::Reach{leases_.Having(), leases_.Having()};
  const uint64_t closed = ClosedBlocks();
  const auto open_blocks = [&](uint64_t slabs) FINESERVE_REQUIRES(mutex_) {
    return slabs * slab_blocks_ - std::min(slabs * slab_blocks_, closed);
  };
  sure_blocks_ = open_blocks(reach.sure);
  first_blocks_ = open_blocks(reach.first);
  most_blocks_ = leases_.Most() * slab_blocks_;
}

// Returns the unused blocks of slabs that are leaving: no new blocks are handed
// out there.
uint64_t GroupView::ClosedBlocks() const {
  uint64_t closed = 0;
  for (const GroupHold hold : {GroupHold::kAsked, GroupHold::kLeaving}) {
    for (uint32_t v = 0; (v = leases_.Next(hold, v)) != 0;) {
      closed +=
          slab_blocks_ - std::min<uint64_t>(ranks_[0].Used(v), slab_blocks_);
    }
  }
  return closed;
}

void GroupView::Tell(uint64_t now_ms) {
  const bool wishes = leases_.TakeWishesChanged();
  for (uint32_t v = 1; wishes && v <= leases_.views(); ++v) {
    for (uint32_t r = 0; r < count_; ++r) {
      ranks_[r].ShowWished(v, leases_.wished(v));
    }
  }
  const bool again = leases_.wants_more() && now_ms - asked_ms_ >= kAskAgainMs;
  if (again) asked_ms_ = now_ms;
  for (uint32_t r = 0; r < count_; ++r) {
    ranks_[r].SendReturns();
    ranks_[r].SendWant(leases_.take(), wishes || again);
  }
}

bool GroupView::AllJoined() const {
  return std::all_of(ranks_, ranks_ + count_,
                     [](const Rank& rank) { return rank.joined(); });
}

int GroupView::Poll(fs_kv_change* changes, uint32_t capacity) {
  const MutexLock lock(&mutex_);
  if (!Serves()) return -NoGroup();
  Work(NowMs());
  uint32_t count = 0;
  const auto report = [&](GroupHold hold,
                          uint32_t kind) FINESERVE_REQUIRES(mutex_) {
    for (uint32_t v = 0;
         count < capacity && (v = leases_.Next(hold, v)) != 0;) {
      changes[count++] = {v, kind};
      leases_.Report(v);
    }
  };
  report(GroupHold::kAsked, FS_KV_ASKED_BACK);
  report(GroupHold::kReady, FS_KV_LEASED);
  return static_cast<int>(count);
}

int GroupView::Want(uint32_t slabs) {
  const MutexLock lock(&mutex_);
  if (!Serves()) return NoGroup();
  leases_.Want(slabs);
  want_changed_ = true;
  Work(NowMs());
  return FS_OK;
}

int GroupView::ReturnSlab(uint32_t view_index) {
  const MutexLock lock(&mutex_);
  if (!Serves()) return NoGroup();
  if (leases_.Return(view_index)) return FS_OK;
  return KvError(FS_INVALID,
                 "the slab at view index %u is not leased to this engine",
                 view_index);
}

int GroupView::Publish(uint32_t view_index, uint32_t used_blocks) {
  if (!in_use()) return NoGroup();
  for (uint32_t r = 0; r < count_; ++r) {
    ranks_[r].ShowUsed(view_index, used_blocks);
  }
  return FS_OK;
}

bool GroupView::Untold() const {
  return leases_.count(GroupHold::kAsked) > 0 ||
         leases_.count(GroupHold::kReady) > 0;
}

int GroupView::Wait(int timeout_ms) {
  if (!in_use()) return -NoGroup();
  if (timeout_ms < 0) return -NegativeTimeout(timeout_ms);
  const uint32_t wakes = wakes_.load(std::memory_order_relaxed);
  {
    const MutexLock lock(&mutex_);
    if (!Serves()) return -NoGroup();
  }
  for (uint32_t r = 0; r < count_; ++r) ranks_[r].Rejoin();
  const uint64_t deadline = NowMs() + static_cast<uint64_t>(timeout_ms);
  for (uint64_t now = NowMs();; now = NowMs()) {
    uint32_t seen[GroupLeases::kMaxRanks];
    uint64_t limit = deadline;
    {
      const MutexLock lock(&mutex_);
      if (!Serves()) return -NoGroup();
      Work(now);
      if (Untold()) return 1;
      if (leases_.wants_more()) limit = std::min(limit, now + kLookMs);
      for (uint32_t r = 0; r < count_; ++r) {
        seen[r] = ranks_[r].leases().seen();
      }
    }
    if (wakes_.load(std::memory_order_relaxed) != wakes) return 1;
    if (now >= deadline) break;
    SleepFor(limit - now, seen);
  }
  if (AllJoined()) return 0;
  return -KvError(FS_NO_DAEMON,
                  "a daemon of this engine's GPUs has gone; leased slabs stay "
                  "usable");
}

void GroupView::WakeWaiter() {
  wakes_.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(&mutex_);
  if (!Serves()) return;
  syscall(SYS_futex, ranks_[0].leases().futex(), FUTEX_WAKE, INT32_MAX, nullptr,
          nullptr, 0);
}

int GroupView::Suspend() {
  const MutexLock lock(&mutex_);
  if (!in_use()) return NoGroup();
  suspended_ = true;
  leases_.Close();
  for (uint32_t r = 0; r < count_; ++r) ranks_[r].Suspend();
  return FS_OK;
}

int GroupView::Resume() {
  const MutexLock lock(&mutex_);
  if (!in_use() || !suspended_) {
    return KvError(FS_STATE, "this process has not suspended its block pool");
  }
  const int failed = TakeAllPools();
  if (failed == FS_OK) {
    suspended_ = false;
    return FS_OK;
  }
  leases_.Close();
  for (uint32_t r = 0; r < count_; ++r) ranks_[r].Suspend();
  return failed;
}

int GroupView::TakeAllPools() {
  for (uint32_t r = 0; r < count_; ++r) {
    if (const int failed = ranks_[r].Resume()) return failed;
  }
  if (const int bad = CheckAlike()) return bad;
  fs_kv_geometry geometry = {};
  if (const int failed = Open(count_, &geometry)) return failed;
  if (geometry.slab_count == views_) return FS_OK;
  return KvError(FS_INVALID,
                 "the pools of this engine's GPUs have %u slabs in common, and "
                 "had %u: restart the engine",
                 geometry.slab_count, views_);
}

// Sleeps until the leases of any rank change. The daemons wake the words
// through their own mappings of the tables. Kernels before 5.16 cannot wait for
// several words; on those it sleeps on the first rank's word and often looks at
// the others.
void GroupView::SleepFor(uint64_t ms, const uint32_t* seen) {
  struct {
    uint64_t value, address;
    uint32_t flags, reserved;
  } waits[GroupLeases::kMaxRanks];
  constexpr uint32_t kShared32Bits = 2;  // FUTEX2_SIZE_U32, not private
  constexpr long kFutexWaitv = 449;
  for (uint32_t r = 0; r < count_; ++r) {
    const auto* word = ranks_[r].leases().futex();
    waits[r] = {seen[r], reinterpret_cast<uint64_t>(word), kShared32Bits, 0};
  }
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const uint64_t ns = static_cast<uint64_t>(until.tv_nsec) + ms * 1'000'000;
  until.tv_sec += static_cast<time_t>(ns / 1'000'000'000);
  until.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  if (syscall(kFutexWaitv, waits, count_, 0, &until, CLOCK_MONOTONIC) >= 0 ||
      errno != ENOSYS) {
    return;
  }
  const timespec limit = {0,
                          static_cast<long>(std::min(ms, kLookMs)) * 1'000'000};
  syscall(SYS_futex, ranks_[0].leases().futex(), FUTEX_WAIT, seen[0], &limit,
          nullptr, 0);
}

int GroupView::ReadStats(fs_kv_stats* stats) {
  const MutexLock lock(&mutex_);
  if (!in_use()) return NoGroup();
  const uint32_t bytes = stats->struct_bytes;
  *stats = {};
  stats->struct_bytes = bytes;
  stats->leaving_slabs =
      leases_.count(GroupHold::kAsked) + leases_.count(GroupHold::kLeaving);
  stats->leased_slabs = leases_.count(GroupHold::kReady) +
                        leases_.count(GroupHold::kHeld) + stats->leaving_slabs;
  stats->wanted_slabs = leases_.take();
  stats->returned_slabs = ranks_[0].returned_slabs();
  return FS_OK;
}

void GroupView::AbandonInChild() {
  for (Rank& rank : ranks_) rank.AbandonInChild();
}

}  // namespace fineserve::shim
