#ifndef SHIM_VIEW_ENGINE_VIEW_H_
#define SHIM_VIEW_ENGINE_VIEW_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/fineserve_kv.h"
#include "shim/host/brief_mutex.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/link/daemon_link.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/granules.h"
#include "shim/map/range_table.h"
#include "shim/map/view_mapping.h"
#include "shim/view/view_state.h"
#include "shim/view/view_swaps.h"

namespace fineserve::shim {

// The view of this process (fineserve_kv.h; design note 0000, Memory): its
// mapping, its leases, its scoreboard and the allocator of its blocks.
//
//   kNone ─Register─► kRegistered ─Activate─► kActive ─Suspend─► kSuspended
//     ▲                    │ └──(it failed)──► kClosed ◄─Close─┴◄─┘    │
//     │                    │                      │       └◄──Resume───┘
//     └─(tensors freed)────┴──────────────────────┘
//
// A suspended view has no lease, and nothing is mapped at its addresses: its
// process holds none of the pool's memory, also under another daemon, and a
// kernel that touches a KV tensor faults instead of writing what others use.
//
// Failures: if the daemon dies before ActivateDone, activation fails; if it
// dies later, the leases stay as the table last had them. The engine waits for
// the daemon only in Register, Activate and Close, and where a slab must be
// mapped while it serves (guarded, strict, a pool that grew). This process may
// die at any instruction: it holds no lock that others wait for, and its slabs
// are quarantined (design note 0002). A slab is unmapped before the notice that
// returns it is sent.
//
// Thread-safe. One thread at a time works: it maps, unmaps and sends, and waits
// for the driver and the daemon; BeginStep, Poll and Wait begin with that, and
// between steps a keeper does it (Keep). BeginStep and Poll leave it out while
// another thread works: their caller may hold a lock that the other thread's
// driver call waits for, such as Python's, which kernels on the host need. For
// the same reason slabs that join or leave the pool are mapped and unmapped by
// the keeper, once there is one. The view's holdings and want are under another
// lock, for microseconds at most, so Allocate, Free, Want and ReturnSlab wait
// for nothing. Messages that these leave behind are sent at once, or by the
// thread that works. In a rank of an engine that spans GPUs (FS_KV_RANK),
// another process runs the block pool: this object maps the view, and sends
// nothing about its slabs. Functions that return int return FS_OK or an FS_…
// error with its text set. Constant-initialised, trivially destroyed.
class EngineView {
 public:
  // `link` and `scoreboard` must outlive this object.
  constexpr EngineView(DaemonLink* link, const ScoreboardWriter* scoreboard)
      : link_(link), scoreboard_(scoreboard) {}

  // If true, this process gets no KV except the view's tensors.
  bool in_use() const { return stage() != Stage::kNone; }
  bool is_active() const { return IsActive(); }
  bool is_rank() const { return is_rank_.load(std::memory_order_relaxed); }
  bool is_registered() const {
    return is_registered_.load(std::memory_order_relaxed);
  }
  // True if the engine has begun a step, or used a block, since the view was
  // activated or resumed; for a rank, if the view is active.
  bool serves() const {
    return IsActive() &&
           (has_served_.load(std::memory_order_relaxed) || is_rank());
  }

  // True if the view is active in a pool whose daemon has gone, and another
  // daemon has begun its own pool.
  bool IsInFormerPool();

  int ReadPool(const Driver& real, fs_kv_pool* pool);
  int Register(const Driver& real, const fs_kv_format& format,
               fs_kv_geometry* geometry);
  // Adds a tensor. kWrongSize if `bytes` is not the size of a tensor of the
  // view, or if no tensor is expected now.
  MapResult AddTensor(const Driver& real, uint64_t bytes, Redirection* out);
  // Ends the view, unless the tensor is still on scratch. Waits for the
  // context's work. After an error the tensor stays.
  driver::CUresult FreeTensor(const Driver& real, const Redirection& tensor);
  int Activate(const Driver& real);
  int Suspend(const Driver& real);
  int Resume(const Driver& real);
  int Close(const Driver& real);
  int SlabBlocks(uint32_t view_index, uint64_t* first, uint64_t* end);
  int ReadRank(fs_kv_rank* rank);

  // For an engine with its own block pool.
  int Poll(const Driver& real, fs_kv_change* changes, uint32_t capacity);
  int Want(uint32_t slabs);
  int ReturnSlab(uint32_t view_index);
  int Publish(uint32_t view_index, uint32_t used_blocks);
  int Wait(const Driver& real, int timeout_ms);
  // Makes a Wait that is in progress return 1.
  void WakeWaiter();

  // Does the work that an engine may neglect while it is idle: answers
  // ask-backs between steps, publishes the blocks in use and the want, and
  // finds the successor of a lost daemon, also to report ends to it. Returns
  // the time until the next call if leases do not change; 0 ms if no view is
  // active and no end is left to report.
  struct Pause {
    uint32_t ms = 0;
    // ViewLeases::futex; null if no view is active.
    const std::atomic<uint32_t>* word = nullptr;
    uint32_t seen = 0;
  };
  Pause Keep(const Driver& real);
  // Sleeps until `*word`, if there is one, differs from `seen`, until another
  // thread wakes it, until a signal arrives, or until `ms` have passed.
  static void SleepFor(const Pause& pause);

  // For an engine that uses our block allocator. HasSteps is true once it has
  // begun a step.
  bool HasSteps();
  uint64_t BeginStep(const Driver& real);
  int EndStep(uint64_t step);
  int Allocate(uint32_t count, uint32_t* ids);
  int Free(uint32_t count, const uint32_t* ids);
  int SetWatermark(uint64_t blocks);
  int ReadStats(fs_kv_stats* stats);

 private:
  enum class Stage : uint32_t {
    kNone,
    kRegistered,
    kActive,
    kSuspended,
    kClosed
  };

  // Holds work_, and at the end sends the messages that were left to it while
  // it was held.
  class FINESERVE_ANNOTATE(scoped_lockable) Work {
   public:
    explicit Work(EngineView* view)
        FINESERVE_ANNOTATE(acquire_capability(view->work_));
    ~Work() FINESERVE_ANNOTATE(release_capability());
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    EngineView* const view_;
  };

  // Unlocks work_, and sends the messages that were left to this thread while
  // it was held.
  void EndWork() FINESERVE_ANNOTATE(release_capability(work_));

  // Acquire: pairs with the release in SetStage.
  Stage stage() const { return stage_.load(std::memory_order_acquire); }
  void SetStage(Stage stage) { stage_.store(stage, std::memory_order_release); }
  bool IsActive() const { return stage() == Stage::kActive; }
  // True if this process runs the block pool of an active view.
  bool RunsPool() const { return IsActive() && !is_rank(); }

  // engine_view.cc
  int Join(const Driver& real) FINESERVE_REQUIRES(work_);
  int Shape(const Driver& real, const fs_kv_format& format,
            const ViewGrant& grant, ViewShape* out) FINESERVE_REQUIRES(work_);
  int Begin(const Driver& real, const fs_kv_format& format,
            const ViewGrant& grant, ViewShape* shape) FINESERVE_REQUIRES(work_);
  int OpenState(const ViewGrant& grant, const ViewShape& shape, bool adopted)
      FINESERVE_REQUIRES(work_, mutex_);
  int CheckReady() FINESERVE_REQUIRES(work_);
  void Serve() FINESERVE_REQUIRES(work_);
  int PutInPlace(const Driver& real) FINESERVE_REQUIRES(work_);
  int NotMapped(const Driver& real, driver::CUresult result);
  driver::CUresult End(const Driver& real) FINESERVE_REQUIRES(work_);
  void Forget() FINESERVE_REQUIRES(work_);

  // engine_view_suspend.cc
  int StopServing() FINESERVE_REQUIRES(work_);
  int Rebuild(const Driver& real, const ViewGrant& grant)
      FINESERVE_REQUIRES(work_);
  void TakeDown(const Driver& real) FINESERVE_REQUIRES(work_);

  // engine_view_serving.cc
  int Starve(uint32_t count);
  int PollNow(const Driver& real, fs_kv_change* changes, uint32_t capacity)
      FINESERVE_REQUIRES(work_);
  void PrepareStep(const Driver& real, uint64_t now_ms)
      FINESERVE_REQUIRES(work_);

  // engine_view_work.cc
  Pause KeepEnds() const FINESERVE_REQUIRES(work_);
  void Look() FINESERVE_REQUIRES(work_);
  // True if the slab's present memory is mapped in its place.
  bool IsInPlace(uint32_t v) const FINESERVE_REQUIRES(work_, mutex_) {
    return mapping_.resident(v) &&
           mapping_.memory(v) == state_.leases().Memory(v);
  }
  bool IsStale(uint32_t v) const FINESERVE_REQUIRES(work_, mutex_);
  uint32_t NextPresent(uint32_t v) const FINESERVE_REQUIRES(work_, mutex_);
  void UnmapStale(const Driver& real) FINESERVE_REQUIRES(work_);
  void ShowMapped() FINESERVE_REQUIRES(work_);
  void FollowPool(const Driver& real, uint64_t now_ms)
      FINESERVE_REQUIRES(work_);
  void SwapGuarded(const Driver& real, uint64_t now_ms, bool patient)
      FINESERVE_REQUIRES(work_);
  // NextOut, NextIn and NextStale return the first slab after `v` that the
  // driver must still unmap (kDone), map (kArrived) or let go (kNone); 0 if
  // there is none.
  uint32_t NextOut(uint32_t v) FINESERVE_REQUIRES(work_);
  uint32_t NextIn(uint32_t v) FINESERVE_REQUIRES(work_);
  uint32_t NextStale(uint32_t v) FINESERVE_REQUIRES(work_);
  void Settle(const Driver& real, uint64_t now_ms, bool patient)
      FINESERVE_REQUIRES(work_);
  bool IsQuiet(const Driver& real, bool urgent) FINESERVE_REQUIRES(work_);
  bool MayMap(uint64_t now_ms) FINESERVE_REQUIRES(work_);
  void SwapOut(const Driver& real) FINESERVE_REQUIRES(work_);
  void SwapIn(const Driver& real, uint64_t now_ms) FINESERVE_REQUIRES(work_);
  void KeepLeases() FINESERVE_REQUIRES(work_);
  void SendNotices() FINESERVE_REQUIRES(work_);
  bool SendReturns() FINESERVE_REQUIRES(work_);
  void Notify();
  void Refresh();
  void WakeWaiters() FINESERVE_REQUIRES(work_);
  void ShowScoreboard(uint64_t now_ms) FINESERVE_REQUIRES(work_);

  DaemonLink* const link_;
  const ScoreboardWriter* const scoreboard_;
  std::atomic<Stage> stage_{Stage::kNone};
  std::atomic<bool> is_rank_{false};        // set at registration
  std::atomic<bool> is_registered_{false};  // FS_KV_REGISTERED
  // Relaxed: it is a hint and publishes nothing.
  std::atomic<bool> has_served_{false};
  ViewScoreboardWriter view_scoreboard_;
  Mutex work_;  // before mutex_
  BriefMutex
      mutex_;  // its holder waits neither for the driver nor for a socket
  ViewState state_ FINESERVE_GUARDED_BY(mutex_);
  std::atomic<bool> unsent_{false};  // something was left to be sent

  ViewMapping mapping_ FINESERVE_GUARDED_BY(work_);
  fs_kv_format format_ FINESERVE_GUARDED_BY(work_) = {};
  uint32_t floor_slabs_ FINESERVE_GUARDED_BY(work_) = 0;
  bool has_stale_ FINESERVE_GUARDED_BY(work_) = false;
  bool kept_ FINESERVE_GUARDED_BY(work_) = false;  // Keep is called
  std::atomic<uint32_t> arrivals_{0};  // slabs that were mapped while serving
  uint32_t connection_ FINESERVE_GUARDED_BY(work_) = 0;
  uint32_t want_sent_ FINESERVE_GUARDED_BY(work_) = 0;
  uint64_t scoreboard_shown_ms_ FINESERVE_GUARDED_BY(work_) = 0;
  uint32_t keep_again_ms_ FINESERVE_GUARDED_BY(work_) = 0;
  uint64_t returned_slabs_ FINESERVE_GUARDED_BY(work_) = 0;
  uint64_t calls_to_activate_ FINESERVE_GUARDED_BY(work_) = 0;
  uint64_t calls_serving_ FINESERVE_GUARDED_BY(work_) = 0;
  ViewSwaps swaps_ FINESERVE_GUARDED_BY(work_);
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_ENGINE_VIEW_H_
