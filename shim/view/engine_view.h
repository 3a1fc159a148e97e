#ifndef SHIM_VIEW_ENGINE_VIEW_H_
#define SHIM_VIEW_ENGINE_VIEW_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/fineserve_kv.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/link/daemon_link.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/link/view_scoreboard_writer.h"
#include "shim/map/granules.h"
#include "shim/map/range_table.h"
#include "shim/map/view_mapping.h"
#include "shim/view/block_allocator.h"
#include "shim/view/view_leases.h"

namespace fineserve::shim {

// The view of this process (fineserve_kv.h; design note 0000, Memory): its
// mapping, its leases, its scoreboard and the allocator of its blocks.
//
//   kNone ─Register─► kRegistered ─Activate─► kActive
//     ▲                    │ └──(it failed)──► kClosed ◄─Close─┘
//     └─(tensors freed)────┴──────────────────────┘
//
// Failures: if the daemon dies before ActivateDone, activation fails; if it
// dies later, the leases stay as the table last had them. The engine waits for
// the daemon only in Register, Activate and Close, and where a slab must be
// mapped while it serves (guarded, strict, a pool that grew). This process may
// die at any instruction: it holds no lock that others wait for, and its slabs
// are quarantined (design note 0002). A slab is unmapped before the notice that
// returns it is sent.
//
// Thread-safe, except for the allocator's calls, which are confined to one
// thread. One lock guards the rest; the thread that serves contends for it with
// a waiting thread that sends notices, for a few microseconds at a time.
// Functions that return int return FS_OK or an FS_… error with its text set.
// Constant-initialised, trivially destroyed.
class EngineView {
 public:
  // Both must outlive this object.
  constexpr EngineView(DaemonLink* link, const ScoreboardWriter* scoreboard)
      : link_(link), scoreboard_(scoreboard) {}

  // If true, this process gets no KV but the view's tensors.
  bool in_use() const { return state() != State::kNone; }

  int Register(const Driver& real, const fs_kv_format& format,
               fs_kv_geometry* geometry);
  // kWrongSize if `bytes` is not the size of a tensor of the view, or if none
  // is expected now.
  MapResult AddTensor(const Driver& real, uint64_t bytes, Redirection* out);
  // Ends the view, unless the tensor still lies on scratch. Waits for the
  // context's work. After an error the tensor stays.
  driver::CUresult FreeTensor(const Driver& real, const Redirection& tensor);
  int Activate(const Driver& real);
  int Close(const Driver& real);
  int SlabBlocks(uint32_t view_index, uint64_t* first, uint64_t* end);

  // For an engine with its own block pool.
  int Poll(const Driver& real, fs_kv_change* changes, uint32_t capacity);
  int Want(uint32_t slabs);
  int ReturnSlab(uint32_t view_index);
  int Publish(uint32_t view_index, uint32_t used_blocks);
  int Wait(const Driver& real, int timeout_ms);

  // For an engine that uses our block allocator.
  uint64_t BeginStep(const Driver& real);
  int EndStep(uint64_t step);
  int Allocate(uint32_t count, uint32_t* ids);
  int Free(uint32_t count, const uint32_t* ids);
  int SetWatermark(uint64_t blocks);
  int ReadStats(fs_kv_stats* stats);

 private:
  enum class State : uint32_t { kNone, kRegistered, kActive, kClosed };

  // Acquire: pairs with the release in SetState.
  State state() const { return state_.load(std::memory_order_acquire); }
  void SetState(State state) { state_.store(state, std::memory_order_release); }
  bool IsActive() FINESERVE_REQUIRES(mutex_) {
    return state() == State::kActive;
  }

  // engine_view.cc
  int Join(const Driver& real) FINESERVE_REQUIRES(mutex_);
  int Shape(const Driver& real, const fs_kv_format& format,
            const ViewGrant& grant, ViewShape* out) FINESERVE_REQUIRES(mutex_);
  int Begin(const ViewGrant& grant, const ViewShape& shape)
      FINESERVE_REQUIRES(mutex_);
  int CheckReady() FINESERVE_REQUIRES(mutex_);
  int PutInPlace(const Driver& real) FINESERVE_REQUIRES(mutex_);
  driver::CUresult End(const Driver& real) FINESERVE_REQUIRES(mutex_);
  void Forget() FINESERVE_REQUIRES(mutex_);

  // engine_view_serving.cc
  void LookAtLeases() FINESERVE_REQUIRES(mutex_);
  // Whether the memory that the slab has now is mapped in its place.
  bool IsInPlace(uint32_t v) const FINESERVE_REQUIRES(mutex_) {
    return mapping_.resident(v) && mapping_.memory(v) == leases_.Memory(v);
  }
  bool IsStale(uint32_t v) const FINESERVE_REQUIRES(mutex_);
  void DropStale(const Driver& real) FINESERVE_REQUIRES(mutex_);
  void Settle(const Driver& real, uint64_t now_ms) FINESERVE_REQUIRES(mutex_);
  bool IsQuiet(const Driver& real, bool urgent) FINESERVE_REQUIRES(mutex_);
  void SwapOutDone(const Driver& real) FINESERVE_REQUIRES(mutex_);
  void SwapInArrived(const Driver& real, uint64_t now_ms)
      FINESERVE_REQUIRES(mutex_);
  void SendNotices() FINESERVE_REQUIRES(mutex_);
  bool SendReturns() FINESERVE_REQUIRES(mutex_);
  void WantForBlocks() FINESERVE_REQUIRES(mutex_);
  void TakeDrained() FINESERVE_REQUIRES(mutex_);
  int Starve(uint32_t count);
  void RefreshScoreboard(uint64_t now_ms) FINESERVE_REQUIRES(mutex_);

  DaemonLink* const link_;
  const ScoreboardWriter* const scoreboard_;
  std::atomic<State> state_{State::kNone};
  ViewScoreboardWriter view_scoreboard_;
  Mutex mutex_;
  ViewMapping mapping_ FINESERVE_GUARDED_BY(mutex_);
  ViewLeases leases_ FINESERVE_GUARDED_BY(mutex_);
  // The allocator and its counts belong to the thread that serves; others leave
  // them alone while it does (fineserve_kv.h). A lock would make a block cost
  // five times as much (bench/micro/blocks_bench). The allocator lies in raw
  // storage so that no destructor runs at exit.
  BlockAllocator* blocks_ = nullptr;
  alignas(BlockAllocator) std::byte
      blocks_storage_[sizeof(BlockAllocator)] = {};
  uint64_t used_blocks_ = 0;
  uint64_t allocated_blocks_ = 0;
  uint64_t freed_blocks_ = 0;
  uint64_t failed_allocations_ = 0;
  uint64_t watermark_misses_ = 0;
  // How many blocks the largest recent failed allocation needed, and until when
  // that counts.
  uint32_t shortfall_ = 0;
  uint64_t shortfall_until_ms_ = 0;
  abi::ViewAnswer answer_ FINESERVE_GUARDED_BY(mutex_) = {};
  // Usable blocks of the slab that has the fewest.
  uint64_t least_blocks_ FINESERVE_GUARDED_BY(mutex_) = 0;

  // State while the engine serves.
  bool has_steps_ FINESERVE_GUARDED_BY(mutex_) = false;  // uses our allocator
  bool has_stale_ FINESERVE_GUARDED_BY(mutex_) = false;
  bool swap_failed_ FINESERVE_GUARDED_BY(mutex_) = false;
  uint32_t want_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint32_t want_sent_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t now_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;  // at the last step begin
  uint64_t done_since_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t retry_swap_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint64_t scoreboard_shown_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  // What the scoreboard shows, with the counts of steps and driver calls.
  ViewGauges gauges_ FINESERVE_GUARDED_BY(mutex_);
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_ENGINE_VIEW_H_
