// The part of EngineView that runs while the engine serves.

#include "shim/link/seqpacket.h"
#include "shim/view/engine_view.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using Hold = ViewLeases::Hold;

int NotActive() {
  return KvError(FS_STATE,
                 "this process has no active view whose block pool it runs");
}

}  // namespace

int EngineView::Wait(const Driver& real, int timeout_ms) {
  if (timeout_ms < 0) return -NegativeTimeout(timeout_ms);
  const uint64_t deadline = NowMs() + static_cast<uint64_t>(timeout_ms);
  Pause pause;
  uint64_t epoch = 0;
  // This must be read before the leases are looked at.
  const uint32_t arrivals = arrivals_.load(std::memory_order_relaxed);
  {
    const Work work(this);
    if (!RunsPool()) return -NotActive();
    epoch = mapping_.shape().epoch;
    if (HasSteps()) {
      // The thread that begins the steps maps slabs and refreshes the
      // scoreboard, so this one does neither.
      SendNotices();
    } else {
      const uint64_t now_ms = NowMs();
      Settle(real, now_ms, /*patient=*/false);
      ShowScoreboard(now_ms);  // an idle engine does not poll
    }
    const MutexLock lock(&mutex_);
    const ViewLeases& leases = state_.leases();
    bool unsent = leases.count(Hold::kAsked) > 0;
    for (uint32_t v = 0; (v = leases.Next(Hold::kArrived, v)) != 0;) {
      unsent = unsent || IsInPlace(v);
    }
    if (unsent) return 1;
    pause.word = leases.futex();
    pause.seen = leases.seen();
  }
  for (;;) {
    // Acquire: pairs with the daemon's release; see ViewLeases::changes.
    if (pause.word->load(std::memory_order_acquire) != pause.seen) return 1;
    if (arrivals_.load(std::memory_order_relaxed) != arrivals) return 1;
    const uint64_t now = NowMs();
    if (now >= deadline) break;
    pause.ms = static_cast<uint32_t>(deadline - now);
    SleepFor(pause);
  }
  link_->Look();
  if (link_->IsJoinedTo(epoch)) return 0;
  return -KvError(FS_NO_DAEMON,
                  "the daemon has gone; leased slabs stay usable");
}

// --- An engine with its own block pool ---

int EngineView::Poll(const Driver& real, fs_kv_change* changes,
                     uint32_t capacity) {
  if (!work_.TryLock()) {
    // Changes are reported at the next poll.
    return RunsPool() ? 0 : -NotActive();
  }
  const int count = PollNow(real, changes, capacity);
  EndWork();
  return count;
}

int EngineView::PollNow(const Driver& real, fs_kv_change* changes,
                        uint32_t capacity) {
  if (!RunsPool()) return -NotActive();
  Look();
  const uint64_t now_ms = NowMs();
  Settle(real, now_ms, /*patient=*/false);
  ShowScoreboard(now_ms);
  const MutexLock lock(&mutex_);
  if (state_.has_steps()) {
    return -KvError(
        FS_STATE, "this engine uses fs_kv_step_begin, which polls the leases");
  }
  ViewLeases& leases = state_.leases();
  uint32_t count = 0;
  uint32_t v = 0;
  while (count < capacity && (v = leases.Next(Hold::kAsked, v)) != 0) {
    changes[count++] = {v, FS_KV_ASKED_BACK};
    leases.Report(v);
  }
  v = 0;
  while (count < capacity && (v = leases.Next(Hold::kArrived, v)) != 0) {
    if (!IsInPlace(v)) continue;
    changes[count++] = {v, FS_KV_LEASED};
    leases.Report(v);
  }
  return static_cast<int>(count);
}

int EngineView::Want(uint32_t slabs) {
  {
    const MutexLock lock(&mutex_);
    if (!RunsPool()) return NotActive();
    state_.Want(slabs, NowMs());
  }
  Notify();
  return FS_OK;
}

int EngineView::ReturnSlab(uint32_t view_index) {
  const MutexLock lock(&mutex_);
  if (!RunsPool()) return NotActive();
  if (state_.leases().ReturnSlab(view_index)) return FS_OK;
  return KvError(FS_INVALID,
                 "the slab at view index %u is not leased to this engine",
                 view_index);
}

int EngineView::Publish(uint32_t view_index, uint32_t used_blocks) {
  if (!RunsPool()) return NotActive();
  if (used_blocks > 0) has_served_.store(true, std::memory_order_relaxed);
  view_scoreboard_.ShowUsed(view_index, used_blocks);
  return FS_OK;
}

// --- An engine that uses our allocator ---

uint64_t EngineView::BeginStep(const Driver& real) {
  const uint64_t now_ms = NowMs();
  {
    const MutexLock lock(&mutex_);
    if (RunsPool()) {
      state_.ExpectStep(now_ms);
      has_served_.store(true, std::memory_order_relaxed);
    }
  }
  if (work_.TryLock()) {
    if (RunsPool()) PrepareStep(real, now_ms);
    EndWork();
  }
  const MutexLock lock(&mutex_);
  if (!RunsPool()) {
    NotActive();
    return 0;
  }
  return state_.BeginStep(now_ms);
}

void EngineView::PrepareStep(const Driver& real, uint64_t now_ms) {
  Look();
  Settle(real, now_ms, /*patient=*/false);
  ShowScoreboard(now_ms);
  const MutexLock lock(&mutex_);
  for (uint32_t v = 0; (v = state_.leases().Next(Hold::kArrived, v)) != 0;) {
    if (IsInPlace(v)) state_.Link(v);
  }
}

int EngineView::EndStep(uint64_t step) {
  {
    const MutexLock lock(&mutex_);
    if (!RunsPool()) return NotActive();
    if (!state_.EndStep(step, NowMs())) {
      return KvError(FS_INVALID, "step %lu is not in flight", step);
    }
  }
  Refresh();
  return FS_OK;
}

int EngineView::Allocate(uint32_t count, uint32_t* ids) {
  {
    const MutexLock lock(&mutex_);
    if (!RunsPool()) return NotActive();
    if (state_.Allocate(count, ids)) return FS_OK;
  }
  return Starve(count);
}

// Called if there are too few free blocks: asks the daemon for more at once.
int EngineView::Starve(uint32_t count) {
  uint32_t free_blocks;
  {
    const MutexLock lock(&mutex_);
    state_.Starve(count, NowMs());
    free_blocks = state_.blocks().free_blocks();
  }
  Notify();
  return KvError(FS_EXHAUSTED, "%u blocks are free, but %u were requested",
                 free_blocks, count);
}

int EngineView::Free(uint32_t count, const uint32_t* ids) {
  uint32_t freed;
  bool less;
  {
    const MutexLock lock(&mutex_);
    if (!RunsPool()) return NotActive();
    freed = state_.Free(count, ids);
    less = state_.HasLess();
  }
  if (less) Refresh();
  if (freed == count) return FS_OK;
  return KvError(FS_INVALID, "block %u is not allocated", ids[freed]);
}

int EngineView::SetWatermark(uint64_t blocks) {
  {
    const MutexLock lock(&mutex_);
    state_.set_watermark(blocks);
  }
  Notify();
  return FS_OK;
}

}  // namespace fineserve::shim
