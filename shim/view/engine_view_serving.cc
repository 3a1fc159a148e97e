// The part of EngineView that runs while the engine serves.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "kernels/driver/rounding.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"
#include "shim/view/engine_view.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using Hold = ViewLeases::Hold;

// How old the figures on the view scoreboard may be.
constexpr uint64_t kScoreboardMs = 5;
// Heuristic: how long a slab that another engine waits for is kept because a
// step is in flight; after that we wait for the device. Also how long the
// blocks that a failed allocation needed stay wanted.
constexpr uint64_t kPatienceMs = 1'000;
// Heuristic: the pause before another try to map a slab, after a failure.
constexpr uint64_t kRetryMs = 1'000;

int NotActive() { return KvError(FS_STATE, "there is no active view"); }

// Sleeps until `*word` differs from `value`, a signal arrives, or `ms` have
// passed.
void SleepOn(const std::atomic<uint32_t>* word, uint32_t value, uint64_t ms) {
  const timespec limit = {static_cast<time_t>(ms / 1'000),
                          static_cast<long>(ms % 1'000) * 1'000'000};
  // A shared futex: the daemon wakes it through its own mapping of the table.
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

}  // namespace

void EngineView::LookAtLeases() {
  if (!leases_.Changed()) return;
  leases_.Look();
  for (uint32_t v = 1; v <= mapping_.shape().slabs && !has_stale_; ++v) {
    has_stale_ = IsStale(v);
  }
}

// True for a slab that has been withdrawn from the pool or has other memory
// now. The engine does not use it, but the GPU cannot free the old memory while
// it is mapped.
bool EngineView::IsStale(uint32_t v) const {
  const Hold hold = leases_.hold(v);
  return (hold == Hold::kNone || hold == Hold::kSent) && mapping_.resident(v) &&
         mapping_.memory(v) != leases_.Memory(v);
}

void EngineView::DropStale(const Driver& real) {
  for (uint32_t v = 1; v <= mapping_.shape().slabs; ++v) {
    if (IsStale(v)) mapping_.SwapOut(real.entry, v);
  }
  has_stale_ = false;
}

// Whether no work of the engine can touch slabs that it does not use. An engine
// that reports its steps is quiet when none is in flight. Without steps, or if
// it is urgent, we wait for the context's work.
bool EngineView::IsQuiet(const Driver& real, bool urgent) {
  if (has_steps_) {
    if (gauges_.steps_begun == gauges_.steps_ended) return true;
    if (!urgent) return false;
  }
  mapping_.CountCalls(3);
  return Synchronize(real.entry, mapping_.context()) == CUDA_SUCCESS;
}

// Maps the slabs that were leased, unmaps those to be returned, and notifies
// the daemon. In mode view the only slabs mapped here are those by which the
// pool grew, and the only ones unmapped are those by which it shrank.
void EngineView::Settle(const Driver& real, uint64_t now_ms) {
  const bool joined = link_->IsJoinedTo(mapping_.shape().epoch);
  const bool guarded = mapping_.shape().mode != abi::ViewMode::kView;
  bool out = false;
  for (uint32_t v = 0; (v = leases_.Next(Hold::kDone, v)) != 0;) {
    const bool usable = mapping_.resident(v);
    if (!joined && usable) leases_.Relink(v);
    out = out || (joined && guarded && usable);
  }
  bool in = false;
  for (uint32_t v = 0; (v = leases_.Next(Hold::kArrived, v)) != 0;) {
    in = in || (!IsInPlace(v) && !mapping_.broken(v));
  }
  in = in && joined && now_ms >= retry_swap_ms_;
  if (!out) {
    done_since_ms_ = 0;
  } else if (done_since_ms_ == 0) {
    done_since_ms_ = now_ms;
  }
  if (out || in || has_stale_) {
    const bool old = out && now_ms - done_since_ms_ >= kPatienceMs;
    const uint64_t needed =
        std::max({gauges_.watermark_blocks, uint64_t{shortfall_}, uint64_t{1}});
    const bool dry = in && blocks_->free_blocks() < needed;
    if (IsQuiet(real, old || dry)) {
      if (has_stale_) DropStale(real);
      if (out) SwapOutDone(real);
      if (in) SwapInArrived(real, now_ms);
    }
  }
  SendNotices();
}

void EngineView::SwapOutDone(const Driver& real) {
  for (uint32_t v = 0; (v = leases_.Next(Hold::kDone, v)) != 0;) {
    if (!mapping_.resident(v)) continue;
    if (mapping_.SwapOut(real.entry, v) != CUDA_SUCCESS && !swap_failed_) {
      swap_failed_ = true;
      Warn("keeping slab %u leased: it could not be unmapped", v - 1);
    }
  }
  done_since_ms_ = 0;
}

void EngineView::SwapInArrived(const Driver& real, uint64_t now_ms) {
  for (uint32_t v = 0; (v = leases_.Next(Hold::kArrived, v)) != 0;) {
    if (IsInPlace(v) || mapping_.broken(v)) continue;
    // Unmap the slab's old memory first.
    if (mapping_.resident(v) &&
        mapping_.SwapOut(real.entry, v) != CUDA_SUCCESS) {
      continue;
    }
    const MapResult mapped =
        mapping_.SwapIn(real.entry, link_, v, leases_.Memory(v));
    if (mapped.outcome == MapOutcome::kMapped) continue;
    retry_swap_ms_ = now_ms + kRetryMs;
    if (!swap_failed_) {
      swap_failed_ = true;
      Warn("slab %u was leased but could not be mapped (CUDA error %d)", v - 1,
           static_cast<int>(mapped.result));
    }
    return;
  }
}

// What cannot be sent now is kept for the next call.
void EngineView::SendNotices() {
  while (leases_.count(Hold::kDone) > 0 && SendReturns()) {
  }
  if (has_steps_) WantForBlocks();  // what was returned is no longer wanted
  if (want_ != want_sent_ &&
      link_->TellWant(mapping_.shape().epoch, want_) == Notice::kSent) {
    want_sent_ = want_;
  }
}

// True if there may be more to send.
bool EngineView::SendReturns() {
  const bool stays_mapped = mapping_.shape().mode == abi::ViewMode::kView;
  auto notice = abi::MakeMessage<abi::ReturnNotice>(0);
  for (uint32_t v = 0; notice.count < abi::kReturnNoticeCapacity;) {
    v = leases_.Next(Hold::kDone, v);
    if (v == 0) break;
    // A slab that may still be mapped must not go to another engine.
    if (mapping_.broken(v) || (mapping_.resident(v) && !stays_mapped)) continue;
    notice.entries[notice.count++] = {v - 1, leases_.lease(v)};
  }
  if (notice.count == 0 ||
      link_->TellReturn(mapping_.shape().epoch, notice) != Notice::kSent) {
    return false;
  }
  for (uint32_t i = 0; i < notice.count; ++i) {
    leases_.MarkSent(notice.entries[i].slab + 1);
  }
  gauges_.returned_slabs += notice.count;
  return notice.count == abi::kReturnNoticeCapacity;
}

void EngineView::RefreshScoreboard(uint64_t now_ms) {
  if (now_ms != 0 && now_ms - scoreboard_shown_ms_ < kScoreboardMs) return;
  scoreboard_shown_ms_ = now_ms;
  gauges_.linked_slabs = leases_.count(Hold::kHeld);
  gauges_.leaving_slabs = leases_.leaving();
  gauges_.driver_calls_serving =
      mapping_.calls() - gauges_.driver_calls_to_activate;
  if (has_steps_) {
    gauges_.free_blocks = blocks_->free_blocks();
    gauges_.used_blocks = used_blocks_;
    gauges_.allocated_blocks = allocated_blocks_;
    gauges_.freed_blocks = freed_blocks_;
    gauges_.failed_allocations = failed_allocations_;
    gauges_.watermark_misses = watermark_misses_;
    for (uint32_t v = 1; v <= mapping_.shape().slabs; ++v) {
      view_scoreboard_.ShowUsed(v, blocks_->UsedBlocks(v));
    }
  } else {
    gauges_.used_blocks = view_scoreboard_.SumUsed();
  }
  view_scoreboard_.Show(gauges_);
}

int EngineView::Wait(const Driver& real, int timeout_ms) {
  if (timeout_ms < 0) {
    return -KvError(FS_INVALID, "timeout_ms is %d, which is negative",
                    timeout_ms);
  }
  const uint64_t deadline = NowMs() + static_cast<uint64_t>(timeout_ms);
  const std::atomic<uint32_t>* word = nullptr;
  uint32_t seen = 0;
  uint64_t epoch = 0;
  {
    MutexLock lock(&mutex_);
    if (!IsActive()) return -NotActive();
    const uint64_t now_ms = NowMs();
    if (has_steps_) {
      // The thread that begins the steps maps slabs and refreshes the
      // scoreboard.
      SendNotices();
    } else {
      Settle(real, now_ms);
      RefreshScoreboard(now_ms);  // an idle engine does not poll
    }
    bool untold = leases_.count(Hold::kAsked) > 0;
    for (uint32_t v = 0; (v = leases_.Next(Hold::kArrived, v)) != 0;) {
      untold = untold || IsInPlace(v);
    }
    if (untold) return 1;
    word = leases_.futex();
    seen = leases_.seen();
    epoch = mapping_.shape().epoch;
  }
  for (;;) {
    // Acquire: pairs with the daemon's release; see ViewLeases::changes.
    if (word->load(std::memory_order_acquire) != seen) return 1;
    const uint64_t now = NowMs();
    if (now >= deadline) break;
    SleepOn(word, seen, deadline - now);
  }
  link_->Look();
  if (link_->IsJoinedTo(epoch)) return 0;
  return -KvError(FS_NO_DAEMON,
                  "the daemon has gone; leased slabs stay usable");
}

// --- An engine with its own block pool ---

int EngineView::Poll(const Driver& real, fs_kv_change* changes,
                     uint32_t capacity) {
  MutexLock lock(&mutex_);
  if (!IsActive()) return -NotActive();
  if (has_steps_) {
    return -KvError(
        FS_STATE, "this engine uses fs_kv_step_begin, which polls the leases");
  }
  LookAtLeases();
  const uint64_t now_ms = NowMs();
  Settle(real, now_ms);
  RefreshScoreboard(now_ms);
  uint32_t count = 0;
  for (uint32_t v = 0; count < capacity;) {
    v = leases_.Next(Hold::kAsked, v);
    if (v == 0) break;
    changes[count++] = {v, FS_KV_ASKED_BACK};
    leases_.Report(v);
  }
  for (uint32_t v = 0; count < capacity;) {
    v = leases_.Next(Hold::kArrived, v);
    if (v == 0) break;
    if (!IsInPlace(v)) continue;
    changes[count++] = {v, FS_KV_LEASED};
    leases_.Report(v);
  }
  return static_cast<int>(count);
}

int EngineView::Want(uint32_t slabs) {
  MutexLock lock(&mutex_);
  if (!IsActive()) return NotActive();
  want_ = slabs;
  SendNotices();
  return FS_OK;
}

int EngineView::ReturnSlab(uint32_t view_index) {
  MutexLock lock(&mutex_);
  if (!IsActive()) return NotActive();
  if (leases_.ReturnSlab(view_index)) return FS_OK;
  return KvError(FS_INVALID,
                 "the slab at view index %u is not leased to this engine",
                 view_index);
}

int EngineView::Publish(uint32_t view_index, uint32_t used_blocks) {
  if (state() != State::kActive) return NotActive();
  view_scoreboard_.ShowUsed(view_index, used_blocks);
  return FS_OK;
}

// --- An engine that uses our allocator ---

uint64_t EngineView::BeginStep(const Driver& real) {
  MutexLock lock(&mutex_);
  if (!IsActive()) {
    NotActive();
    return 0;
  }
  has_steps_ = true;
  now_ms_ = NowMs();
  LookAtLeases();
  for (uint32_t v = 0; (v = leases_.Next(Hold::kAsked, v)) != 0;) {
    blocks_->Leave(v);
    leases_.Report(v);
  }
  TakeDrained();
  Settle(real, now_ms_);
  for (uint32_t v = 0; (v = leases_.Next(Hold::kArrived, v)) != 0;) {
    if (!IsInPlace(v)) continue;
    blocks_->Link(v);
    leases_.Report(v);
  }
  RefreshScoreboard(now_ms_);
  gauges_.steps_begun = blocks_->BeginStep();
  return gauges_.steps_begun;
}

void EngineView::TakeDrained() {
  uint32_t drained[64];
  uint32_t count;
  do {
    count = blocks_->TakeDrained(std::size(drained), drained);
    for (uint32_t i = 0; i < count; ++i) leases_.ReturnSlab(drained[i]);
  } while (count == std::size(drained));
}

// Wants the slabs that are leaving, whose blocks cannot be handed out again,
// and slabs for the other used blocks and the watermark. The size of a failed
// allocation counts only for a while: a request that was given up must not hold
// memory forever.
void EngineView::WantForBlocks() {
  if (now_ms_ >= shortfall_until_ms_) shortfall_ = 0;
  const uint64_t cap = answer_.cap_slabs;
  const uint64_t room =
      std::min(std::max(gauges_.watermark_blocks, uint64_t{shortfall_}),
               cap * least_blocks_);
  const uint64_t staying = used_blocks_ - blocks_->leaving_blocks();
  const uint64_t slabs =
      leases_.leaving() + DivideUp(staying + room, least_blocks_);
  want_ = static_cast<uint32_t>(std::min(slabs, cap));
}

int EngineView::EndStep(uint64_t step) {
  MutexLock lock(&mutex_);
  if (!IsActive()) return NotActive();
  if (step > gauges_.steps_begun || step <= gauges_.steps_ended) {
    return KvError(FS_INVALID, "step %llu is not in flight",
                   static_cast<unsigned long long>(step));
  }
  blocks_->EndStep(step);
  gauges_.steps_ended = step;
  return FS_OK;
}

int EngineView::Allocate(uint32_t count, uint32_t* ids) {
  if (state() != State::kActive) return NotActive();
  if (!blocks_->Allocate(count, ids)) return Starve(count);
  used_blocks_ += count;
  allocated_blocks_ += count;
  if (count >= shortfall_) shortfall_ = 0;
  return FS_OK;
}

// There are too few free blocks: asks the daemon for more at once.
int EngineView::Starve(uint32_t count) {
  MutexLock lock(&mutex_);
  ++failed_allocations_;
  // A slab that became free after the step began does not count, because every
  // slab that passes from one engine to another is free for a moment.
  if (leases_.leased() < answer_.cap_slabs &&
      leases_.AnyFreeSince(now_ms_ * 1'000'000)) {
    ++watermark_misses_;
  }
  shortfall_ = std::max(shortfall_, count);
  shortfall_until_ms_ = NowMs() + kPatienceMs;
  SendNotices();
  return KvError(FS_EXHAUSTED, "%u blocks are free, but %u were requested",
                 blocks_->free_blocks(), count);
}

int EngineView::Free(uint32_t count, const uint32_t* ids) {
  if (state() != State::kActive) return NotActive();
  const uint32_t freed = blocks_->Free(count, ids);
  used_blocks_ -= freed;
  freed_blocks_ += freed;
  if (freed == count) return FS_OK;
  return KvError(FS_INVALID, "block %u is not allocated", ids[freed]);
}

int EngineView::SetWatermark(uint64_t blocks) {
  MutexLock lock(&mutex_);
  gauges_.watermark_blocks = blocks;
  return FS_OK;
}

}  // namespace fineserve::shim
