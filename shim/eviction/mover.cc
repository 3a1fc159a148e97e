#include "shim/eviction/mover.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/gate/gate.h"
#include "shim/gate/presence.h"
#include "shim/host/own_thread.h"
#include "shim/host/thread_state.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using abi::Place;
using abi::Seat;

// Heuristics: limits on a call inside the gate and on the GPU's work. An engine
// that exceeds them is not idle, so it keeps running.
constexpr uint64_t kInsideMs = 10'000;
constexpr int kRestMs = 10'000;
constexpr uint64_t kLeaveMs = 5'000;  // until a block pool has no request
// Limit on the wait until the readers of this process's parameters have their
// own copies; parameters that are still read after that stay on the GPU.
constexpr uint64_t kRecallMs = 5'000;
constexpr uint64_t kAloneMs = 5'000;  // a daemon's restart takes less
constexpr timespec kConnectPause = {0,
                                    200'000'000};  // between tries to connect

}  // namespace

void Mover::Start(const Driver& real) {
  if (started_.exchange(true)) return;
  real_ = &real;
  if (StartOwnThread(&Mover::Run, this)) return;
  Warn("cannot start a thread: this engine cannot be evicted");
}

void Mover::Stop() {
  // Waits for a move that is under way.
  const MutexLock lock(&turn_);
  stopped_ = true;
  // No thread is left that would bring the memory back.
  if (g_gate.is_closed()) g_gate.CloseForGood();
}

void Mover::AbandonInChild() {
  socket_.Close();
  orders_.Close();
  CloseKept();
  started_.store(false, std::memory_order_relaxed);
}

void* Mover::Run(void* mover) {
  pthread_setname_np(pthread_self(), "fineserve-move");
  t_gate_visitor.place = GateVisitor::kExempt;
  const ReentryGuard guard;
  static_cast<Mover*>(mover)->Serve();
  return nullptr;
}

void Mover::Serve() {
  report_ = abi::MakeMessage<abi::MoveReport>(0);
  report_.place = Place::kGpu;
  report_.can_rest = 1;
  for (;;) {
    g_presence.OpenBell();
    if (const Daemon daemon = Connect(); daemon.epoch != 0) {
      alone_since_ms_ = 0;
      bool goes_on = Report();
      if (goes_on) SetKnownTo(daemon);
      while (goes_on) goes_on = AwaitOrder() && Report();
      SetKnownTo({});
      SayThatNoneOrders();
    }
    orders().Close();
    {
      const MutexLock lock(&turn_);
      if (stopped_) return;
      if (report_.place == Place::kAtRest) {
        may_be_old_ = true;
        GoOn(*real_);
        EndIfLost();
      }
      TendLender();
      EndIfLost();
      HelpAlone();
    }
    if (FindSeat() == seat_) nanosleep(&kConnectPause, nullptr);
  }
}

// Brings an engine that is needed back to the GPU if there is no daemon that
// could refuse it.
void Mover::HelpAlone() {
  const uint64_t now_ms = NowMs();
  if (alone_since_ms_ == 0) alone_since_ms_ = now_ms;
  if (now_ms - alone_since_ms_ < kAloneMs || WaitReadable(g_presence.bell(), 0))
    return;
  g_presence.AnswerBell();
  const bool was_away = !IsHere();
  if (report_.place == Place::kHost && !ComeBack(*real_)) return;
  if (was_away && GoOn(*real_)) {
    Warn("back on the GPU without a daemon, because calls waited for it");
  }
  EndIfLost();
}

// Ends the process if it has lost its memory, because it could neither compute
// nor answer.
void Mover::EndIfLost() {
  if (!lost_) return;
  Warn("%s", report_.why);
  _exit(EXIT_FAILURE);
}

bool Mover::Fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report_.why, sizeof(report_.why), format, arguments);
  va_end(arguments);
  return false;
}

template <typename Act>
void Mover::Obey(uint32_t order, Act act) {
  const MutexLock lock(&turn_);
  report_.order = order;
  const bool done = stopped_ ? Fail("the program is ending") : act();
  report_.failed = done ? 0 : 1;
}

// False if the connection is over. The result of the order is the next report.
bool Mover::AwaitOrder() {
  const int fd = orders().Get();
  abi::Received received;
  abi::MoveOrder order;
  abi::DropOrder drop;
  if (fd < 0 || !WaitForOrder(fd) || received.ReceiveFrom(fd) != 0) {
    return false;
  }
  if (received.As(&drop)) {
    Obey(drop.order, [&] { return Drop(*real_, drop.lender, drop.bytes); });
    return true;
  }
  if (!received.As(&order)) return false;
  Obey(order.order, [&] { return MoveTo(order.to); });
  return true;
}

bool Mover::MoveTo(Place to) {
  switch (to) {
    case Place::kHost:
      return Leave(*real_);
    case Place::kAtRest:
      return report_.place == Place::kHost ? ComeBack(*real_)
                                           : ComeToRestAsOneOfMany(*real_);
    case Place::kGpu:
      return Restore(*real_) && ComeBack(*real_) && GoOn(*real_);
    case Place::kDropped:
      break;  // by a DropOrder alone
  }
  return Fail("an order that this release does not know");
}

// Has the owner of the block pool suspend the view; the owner refuses while
// there are requests.
bool Mover::LeaveView(const Driver& real) {
  EngineView& view = redirector_->view();
  if (view.is_rank() && view.in_use()) return AwaitLeaveAsRank();
  if (redirector_->group().in_use()) {
    g_presence.Ask();
    redirector_->group().WakeWaiter();
    return AwaitLeave();
  }
  if (view.in_use() && view.is_registered()) {
    return Fail("other devices have the addresses of its KV cache");
  }
  if (!view.is_active()) return true;
  g_presence.Ask();
  if (!view.HasSteps()) {
    view.WakeWaiter();
    if (AwaitLeave()) return true;
    if (!view.HasSteps()) return false;
    g_presence.Ask();  // it has begun its first step since
  }
  // The pool is ours.
  if (!g_presence.BeginLeaving()) return false;
  const int result = view.Suspend(real);
  g_presence.Leave(result == FS_OK);
  return result == FS_OK || Fail("%s", KvErrorText());
}

// Waits until this rank has left. The process that runs the block pool has left
// before this order was given, and calls each rank.
bool Mover::AwaitLeaveAsRank() {
  if (!redirector_->first_rank().is_known()) {
    return Fail(
        "it spans GPUs, and the process that runs its block pool cannot leave");
  }
  return g_presence.AwaitLeaveAsRank(kLeaveMs) ||
         Fail("the process that runs its block pool did not let it go");
}

bool Mover::AwaitLeave() {
  return g_presence.AwaitLeave(kLeaveMs) ||
         Fail(
             "it did not become idle within %lu ms: it has requests, or a "
             "block pool that cannot leave",
             kLeaveMs);
}

// Resumes a view that was suspended by leaving. True if there was none, or if
// the view is active again. The keeper then unmaps slabs that leave the pool,
// as they may do for the room that this process is about to ask for. A view of
// a pool that no longer exists can never be resumed, so this process, which
// would wait for it, ends.
bool Mover::ResumeView(const Driver& real) {
  if (g_presence.state() != Presence::State::kAway || seat_ == Seat::kPool ||
      redirector_->view().is_active()) {
    return true;
  }
  const int result = redirector_->ResumeView(real);
  report_.lacks_room = result == FS_NO_ROOM ? 1 : 0;
  lost_ = lost_ || result == FS_INVALID;
  keeper_->Start(real);  // it also tells a daemon of a view that it refused
  return result == FS_OK || Fail("%s", KvErrorText());
}

// Suspends again a view that was suspended by leaving. False if it is active
// and stays so.
bool Mover::SuspendView(const Driver& real) {
  return g_presence.state() != Presence::State::kAway ||
         !redirector_->view().is_active() ||
         redirector_->view().Suspend(real) == FS_OK ||
         Fail("%s", KvErrorText());
}

// Resumes the view. If it is refused, the next ring of the bell tries again.
bool Mover::ReturnToView(const Driver& real) {
  // A rank may be about to leave.
  if (g_presence.state() != Presence::State::kAway) return true;
  if (!ResumeView(real)) return false;
  g_presence.Return();
  return true;
}

// Brings this process from the GPU to rest. After an error it is still on the
// GPU, and keeps running.
bool Mover::ComeToRest(const Driver& real) {
  if (!CanClose() || !Restore(real)) return false;
  if (report_.place != Place::kGpu) return true;
  if (!LeaveView(real)) return false;
  if (!CloseGate(real)) {
    UndoAfterFailure(real, &Mover::ReturnToView);
    return false;
  }
  report_.place = Place::kAtRest;
  may_be_old_ = false;
  return true;
}

// Comes to rest and also notifies exporters. A process that leaves alone does
// not notify them: a silent exporter of another engine would keep it from
// coming back.
bool Mover::ComeToRestAsOneOfMany(const Driver& real) {
  if (!ComeToRest(real)) return false;
  char name[abi::kNameBytes];
  redirector_->CopyEngineName(name);
  redirector_->opened().Rest(name);
  return true;
}

bool Mover::CanClose() {
  const char* const function = g_gate.kept_open_by();
  return function == nullptr ||
         Fail("it calls %s of a later CUDA than this FineServe knows",
              function);
}

// Returns true once this process does not use the device; a process that runs
// the block pool of others never uses it.
bool Mover::CloseGate(const Driver& real) {
  if (seat_ == Seat::kPool) return true;
  ResidentMemory& memory = *redirector_->resident();
  if (!memory.EndRest()) {
    return Fail("its work on the GPU has not ended since the last try");
  }
  if (!CanClose()) return false;
  if (!g_gate.Close(kInsideMs)) {
    return g_gate.captures()
               ? Fail("it captures a CUDA graph")
               : Fail(
                     "a call of its to the driver did not return within %lu "
                     "ms",
                     kInsideMs);
  }
  driver::CUcontext contexts[ResidentMemory::kMostContexts];
  const size_t count =
      redirector_->opened().Contexts(contexts, ResidentMemory::kMostContexts);
  char why[sizeof(report_.why)];
  if (!memory.Rest(real, contexts, count, kRestMs, why, sizeof(why))) {
    g_gate.Open();
    return Fail("%s", why);
  }
  memory.EndRest();
  return true;
}

// Moves the memory to the host. After an error everything is where it was, and
// the gate is open if it was.
bool Mover::Leave(const Driver& real) {
  if (report_.place == Place::kHost) return true;
  const bool was_open = IsHere();
  // Restores first; otherwise two processes that read each other's parameters
  // would wait for each other.
  if (!Restore(real)) return false;
  RecallReaders(redirector_->resident(), kRecallMs);
  if (!ComeToRest(real)) return false;
  may_be_old_ = true;
  if (SuspendView(real) && MoveOut(real)) {
    redirector_->opened().Unmap(real);
    report_.place = Place::kHost;
    return true;
  }
  if (was_open) UndoAfterFailure(real, &Mover::GoOn);
  return false;
}

// Calls `undo` after a failure, and keeps the failure's reason, which is
// reported.
void Mover::UndoAfterFailure(const Driver& real,
                             bool (Mover::*undo)(const Driver&)) {
  char why[sizeof(report_.why)];
  memcpy(why, report_.why, sizeof(why));
  if (!(this->*undo)(real)) {
    Warn("after a move that failed: %s", report_.why);
  }
  memcpy(report_.why, why, sizeof(why));
}

// Brings the memory back to the GPU, at rest. The view comes first, since it
// may be refused: its floor may have been promised to others. After an error
// all memory is still out.
bool Mover::ComeBack(const Driver& real) {
  if (report_.place != Place::kHost) return true;
  if (!ResumeView(real)) return false;
  if (!MoveIn(real)) {
    UndoAfterFailure(real, &Mover::SuspendView);
    return false;
  }
  report_.place = Place::kAtRest;
  return true;
}

// Makes this process run again from rest. After an error it is at rest, and the
// gate is closed.
bool Mover::GoOn(const Driver& real) {
  if (IsHere()) return true;
  char why[sizeof(report_.why)];
  const OpenedMemory::Back back =
      redirector_->opened().Return(real, may_be_old_, why, sizeof(why));
  lost_ = lost_ || back == OpenedMemory::Back::kLost;
  if (back != OpenedMemory::Back::kHere) return Fail("%s", why);
  if (seat_ != Seat::kPool) g_gate.Open();
  report_.place = Place::kGpu;
  if (!ReturnToView(real)) Warn("its view is still away: %s", report_.why);
  return true;
}

}  // namespace fineserve::shim
