// The part of EngineView that maps, unmaps, sends and publishes.

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"
#include "shim/view/engine_view.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using Hold = ViewLeases::Hold;

// Maximum age of the figures on the view scoreboard.
constexpr uint64_t kScoreboardMs = 5;
// Heuristic: how soon a keeper retries returns that failed, and how late it
// notices events that do not wake it, such as the loss of a daemon.
constexpr uint32_t kSoonMs = 5;
constexpr uint32_t kSeldomMs = 1'000;
// More slabs than any engine wants.
constexpr uint32_t kUnknownWant = UINT32_MAX;

void Wake(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

EngineView::Work::Work(EngineView* view) : view_(view) { view->work_.Lock(); }

EngineView::Work::~Work() { view_->EndWork(); }

void EngineView::EndWork() {
  work_.Unlock();
  if (unsent_.load()) Notify();
}

// Sends the pending messages, or leaves them to the thread that works. That
// thread looks at unsent_ after it has unlocked, so no message is forgotten.
// Sequentially consistent, because each side writes one of the two words and
// reads the other.
void EngineView::Notify() {
  unsent_.store(true);
  while (unsent_.load() && work_.TryLock()) {
    unsent_.store(false);
    if (IsActive()) {
      SendNotices();
      ShowScoreboard(NowMs());
    }
    work_.Unlock();
  }
}

void EngineView::SleepFor(const Pause& pause) {
  const timespec limit = {static_cast<time_t>(pause.ms / 1'000),
                          static_cast<long>(pause.ms % 1'000) * 1'000'000};
  if (pause.word == nullptr) {
    nanosleep(&limit, nullptr);
    return;
  }
  // Not a private futex, because the daemon wakes it through its own mapping of
  // the table.
  syscall(SYS_futex, pause.word, FUTEX_WAIT, pause.seen, &limit, nullptr, 0);
}

bool EngineView::HasSteps() {
  const MutexLock lock(&mutex_);
  return state_.has_steps();
}

void EngineView::Look() {
  const MutexLock lock(&mutex_);
  const bool changed = state_.leases().Changed();
  state_.Look();
  if (!changed) return;
  for (uint32_t v = 1; v <= mapping_.shape().slabs && !has_stale_; ++v) {
    has_stale_ = IsStale(v);
  }
}

// True for a slab that has been withdrawn from the pool or has other memory
// now. The engine does not use it, but the GPU cannot free the old memory while
// it is mapped. For a rank the hold is irrelevant, because another process
// reports and returns the rank's slabs. No step of the rank can touch a stale
// slab: a slab leaves the pool only after that process has returned it, which
// happens behind the fence of all ranks, and that process uses other memory of
// the slab only once every rank has shown that it is mapped (ShowMapped).
bool EngineView::IsStale(uint32_t v) const {
  const Hold hold = state_.leases().hold(v);
  const bool unused = hold == Hold::kNone || hold == Hold::kSent || !RunsPool();
  return unused && mapping_.resident(v) &&
         mapping_.memory(v) != state_.leases().Memory(v);
}

uint32_t EngineView::NextStale(uint32_t v) {
  const MutexLock lock(&mutex_);
  while (++v <= mapping_.shape().slabs) {
    if (IsStale(v)) return v;
  }
  return 0;
}

uint32_t EngineView::NextOut(uint32_t v) {
  const MutexLock lock(&mutex_);
  while ((v = state_.leases().Next(Hold::kDone, v)) != 0) {
    if (mapping_.resident(v)) return v;
  }
  return 0;
}

uint32_t EngineView::NextIn(uint32_t v) {
  const MutexLock lock(&mutex_);
  const ViewLeases& leases = state_.leases();
  const auto next = [&]() FINESERVE_REQUIRES(work_, mutex_) {
    return is_rank() ? NextPresent(v) : leases.Next(Hold::kArrived, v);
  };
  while ((v = next()) != 0) {
    if (!IsInPlace(v) && !mapping_.broken(v)) return v;
  }
  return 0;
}

// A rank maps whatever its pool has, as it did when it was activated: another
// process leases slabs, and only those that are mapped already.
uint32_t EngineView::NextPresent(uint32_t v) const {
  while (++v <= mapping_.shape().slabs) {
    if (state_.leases().Memory(v) != 0) return v;
  }
  return 0;
}

// True if no work of the engine can touch slabs that it does not use. An engine
// that reports its steps is quiet when no step is in flight. Without steps, or
// if `urgent`, waits for the context's work.
bool EngineView::IsQuiet(const Driver& real, bool urgent) {
  {
    const MutexLock lock(&mutex_);
    if (state_.has_steps() && !state_.in_flight()) return true;
    if (state_.has_steps() && !urgent) return false;
  }
  mapping_.CountCalls(3);
  return Synchronize(real.entry, mapping_.context()) == CUDA_SUCCESS;
}

// Keeps the slabs whose daemon has gone before they were returned: they are
// still ours.
void EngineView::KeepLeases() {
  const MutexLock lock(&mutex_);
  ViewLeases& leases = state_.leases();
  for (uint32_t v = 0; (v = leases.Next(Hold::kDone, v)) != 0;) {
    if (mapping_.resident(v)) leases.Relink(v);
  }
}

// Brings the mappings up to date, and notifies the daemon. In mode view, it
// maps and unmaps only the slabs by which the pool grew or shrank. If
// `patient`, it waits for nothing.
void EngineView::Settle(const Driver& real, uint64_t now_ms, bool patient) {
  if (!link_->IsJoinedTo(mapping_.shape().epoch)) KeepLeases();
  if (mapping_.shape().mode != abi::ViewMode::kView) {
    SwapGuarded(real, now_ms, patient);
  } else if (!kept_) {
    FollowPool(real, now_ms);
  }
  SendNotices();
}

bool EngineView::MayMap(uint64_t now_ms) {
  return link_->IsJoinedTo(mapping_.shape().epoch) && swaps_.MayMap(now_ms) &&
         NextIn(0) != 0;
}

// For a view of all slabs: lets go of the slabs that have left the pool, and
// maps those that have joined it and, unless this is a rank, are leased to us.
// Does so even while steps are in flight, since an engine that always has one
// would otherwise never give the memory back. No step in flight can use such a
// slab: it left after the fence of every engine that had it, or has not been
// reported yet.
void EngineView::FollowPool(const Driver& real, uint64_t now_ms) {
  UnmapStale(real);
  if (MayMap(now_ms)) SwapIn(real, now_ms);
  ShowMapped();
}

// In a rank: shows the process that runs the block pool which memory is mapped.
void EngineView::ShowMapped() {
  if (!is_rank()) return;
  for (uint32_t v = 1; v <= mapping_.shape().slabs; ++v) {
    view_scoreboard_.ShowMapped(v, mapping_.memory(v));
  }
}

void EngineView::UnmapStale(const Driver& real) {
  for (uint32_t v = 0; has_stale_ && (v = NextStale(v)) != 0;) {
    mapping_.SwapOut(real.entry, v);
  }
  has_stale_ = false;
}

// For a view of leased slabs only: unmaps slabs that must be returned, and maps
// slabs that were leased. If `patient`, nothing is mapped.
void EngineView::SwapGuarded(const Driver& real, uint64_t now_ms,
                             bool patient) {
  const bool joined = link_->IsJoinedTo(mapping_.shape().epoch);
  const bool out = joined && NextOut(0) != 0;
  const bool in = !patient && MayMap(now_ms);
  bool urgent = swaps_.IsOverdue(out, now_ms);
  if (!out && !in && !has_stale_) return;
  if (in) {
    const MutexLock lock(&mutex_);
    urgent = urgent || state_.blocks().free_blocks() < state_.needed_blocks();
  }
  const uint64_t began_ns = NowNs();
  if (!IsQuiet(real, urgent && !patient)) return;
  UnmapStale(real);
  if (out) SwapOut(real);
  if (in) SwapIn(real, now_ms);
  if (!patient) swaps_.Count(NowNs() - began_ns);
}

void EngineView::SwapOut(const Driver& real) {
  for (uint32_t v = 0; (v = NextOut(v)) != 0;) {
    if (mapping_.SwapOut(real.entry, v) != CUDA_SUCCESS &&
        swaps_.IsFirstFailure()) {
      Warn("keeping slab %u leased: it could not be unmapped", v - 1);
    }
  }
  swaps_.EndWait();
}

void EngineView::SwapIn(const Driver& real, uint64_t now_ms) {
  // Only the slab table is read.
  const ViewState* const state = &state_;
  for (uint32_t v = 0; (v = NextIn(v)) != 0;) {
    // Unmaps the slab's old memory first.
    if (mapping_.resident(v) &&
        mapping_.SwapOut(real.entry, v) != CUDA_SUCCESS) {
      continue;
    }
    const uint64_t memory = state->leases().Memory(v);
    const MapResult mapped = mapping_.SwapIn(real.entry, link_, v, memory);
    // It has left the pool since.
    if (state->leases().Memory(v) != memory) continue;
    if (mapped.outcome == MapOutcome::kMapped) {
      // Relaxed: it only tells the waiter to look again.
      arrivals_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    swaps_.MapLater(now_ms);
    if (swaps_.IsFirstFailure()) {
      Warn("slab %u was leased but could not be mapped (CUDA error %d)", v - 1,
           static_cast<int>(mapped.result));
    }
    return;
  }
}

// Sends notices. Messages that cannot be sent now are kept for the next call.
void EngineView::SendNotices() {
  if (!RunsPool()) return;
  if (link_->IsJoinedTo(mapping_.shape().epoch) &&
      connection_ != link_->connections()) {
    // Messages sent on the former connection may never have been read.
    const MutexLock lock(&mutex_);
    connection_ = link_->connections();
    state_.leases().SendAgain();
    want_sent_ = kUnknownWant;
  }
  while (SendReturns()) {
  }
  uint32_t want;
  bool again;
  {
    const MutexLock lock(&mutex_);
    state_.UpdateWant(NowMs());  // what was returned is no longer wanted
    want = state_.want();
    again = state_.TakeAskAgain();
  }
  if ((want != want_sent_ || again) &&
      link_->TellWant(mapping_.shape().epoch, want) == Notice::kSent) {
    want_sent_ = want;
  }
}

// Sends the returns. True if there may be further ones to send.
bool EngineView::SendReturns() {
  const bool stays_mapped = mapping_.shape().mode == abi::ViewMode::kView;
  auto notice = abi::MakeMessage<abi::ReturnNotice>(0);
  {
    const MutexLock lock(&mutex_);
    const ViewLeases& leases = state_.leases();
    for (uint32_t v = 0; notice.count < abi::kReturnNoticeCapacity &&
                         (v = leases.Next(Hold::kDone, v)) != 0;) {
      // A slab that may still be mapped must not go to another engine.
      if (mapping_.broken(v) || (mapping_.resident(v) && !stays_mapped)) {
        continue;
      }
      notice.entries[notice.count++] = {v - 1, leases.lease(v)};
    }
  }
  if (notice.count == 0 ||
      link_->TellReturn(mapping_.shape().epoch, notice) != Notice::kSent) {
    return false;
  }
  const MutexLock lock(&mutex_);
  for (uint32_t i = 0; i < notice.count; ++i) {
    state_.leases().MarkSent(notice.entries[i].slab + 1);
  }
  returned_slabs_ += notice.count;
  return notice.count == abi::kReturnNoticeCapacity;
}

// Publishes the figures. The last figures before an engine becomes idle are
// shown at once.
void EngineView::ShowScoreboard(uint64_t now_ms) {
  if (!RunsPool()) return;
  const MutexLock lock(&mutex_);
  if (state_.in_flight() && now_ms - scoreboard_shown_ms_ < kScoreboardMs) {
    return;
  }
  scoreboard_shown_ms_ = now_ms;
  calls_serving_ = mapping_.calls() - calls_to_activate_;
  ViewGauges gauges;
  gauges.returned_slabs = returned_slabs_;
  gauges.driver_calls_to_activate = calls_to_activate_;
  gauges.driver_calls_serving = calls_serving_;
  swaps_.Show(&gauges);
  state_.Show(&gauges);
  if (state_.has_steps()) {
    for (uint32_t v = 1; v <= mapping_.shape().slabs; ++v) {
      view_scoreboard_.ShowUsed(v, state_.UsedBlocks(v));
    }
  } else {
    gauges.used_blocks = view_scoreboard_.SumUsed();
  }
  view_scoreboard_.Show(gauges);
}

// Reports decreases: returns drained slabs, or leaves them to the keeper if the
// driver must unmap them first.
void EngineView::Refresh() {
  Notify();
  const std::atomic<uint32_t>* word;
  {
    const MutexLock lock(&mutex_);
    if (!IsActive() || state_.leases().count(Hold::kDone) == 0) return;
    word = state_.leases().futex();
  }
  // A keeper that is not asleep yet soon looks again anyway.
  Wake(word);
}

// Wakes threads that wait for leases, since a lease can now be used.
void EngineView::WakeWaiters() {
  const std::atomic<uint32_t>* word;
  {
    const MutexLock lock(&mutex_);
    word = state_.leases().futex();
  }
  Wake(word);
}

void EngineView::WakeWaiter() {
  const Work work(this);
  arrivals_.fetch_add(1, std::memory_order_relaxed);
  if (IsActive()) WakeWaiters();
}

// Keeps running while ends are not reported: if a view was suspended or closed
// while no daemon answered, its slabs and its floor stay in the daemon's books
// until a daemon learns of the end.
EngineView::Pause EngineView::KeepEnds() const {
  const bool unsent = link_->has_unconfirmed_ends() || link_->has_kept_ends();
  return {unsent ? kSeldomMs : 0, nullptr, 0};
}

EngineView::Pause EngineView::Keep(const Driver& real) {
  link_->Look();
  link_->Rejoin();  // both tell what has ended
  const Work work(this);
  if (!IsActive()) return KeepEnds();
  const uint64_t now_ms = NowMs();
  Look();
  if (mapping_.shape().mode == abi::ViewMode::kView) {
    kept_ = true;
    const uint32_t before = arrivals_.load(std::memory_order_relaxed);
    FollowPool(real, now_ms);
    if (arrivals_.load(std::memory_order_relaxed) != before) WakeWaiters();
  }
  if (HasSteps() || !RunsPool()) {
    Settle(real, now_ms, /*patient=*/true);
    ShowScoreboard(now_ms);
  } else {
    SendNotices();
  }
  const MutexLock lock(&mutex_);
  const ViewLeases& leases = state_.leases();
  Pause pause = {kSeldomMs, leases.futex(), leases.seen()};
  if (leases.count(Hold::kDone) > 0) {
    pause.ms = keep_again_ms_ =
        std::clamp(2 * keep_again_ms_, kSoonMs, kSeldomMs);
  } else {
    keep_again_ms_ = kSoonMs;
    const uint64_t less_at_ms = std::max(state_.less_at_ms(), now_ms + 1);
    if (less_at_ms - now_ms < kSeldomMs) {
      pause.ms = static_cast<uint32_t>(less_at_ms - now_ms);
    }
  }
  return pause;
}

}  // namespace fineserve::shim
