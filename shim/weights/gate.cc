#include "shim/weights/gate.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "shim/host/private_futex.h"
#include "shim/link/seqpacket.h"
#include "shim/weights/presence.h"

namespace fineserve::shim {

constinit Gate g_gate;

namespace {

// Calls its destructor at a thread's end, for threads that were listed.
pthread_key_t g_visitor_key;

// Between two asks for the memory, by a call that waits for it.
constexpr uint64_t kRingAgainMs = 1'000;

long Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool Gate::Prepare() {
  return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
         pthread_key_create(&g_visitor_key, &Gate::Unlist) == 0;
}

void Gate::List(GateVisitor* visitor) {
  visitor->listed = true;
  pthread_setspecific(g_visitor_key, visitor);
  const MutexLock lock(&mutex_);
  visitor->next = visitors_;
  visitors_ = visitor;
}

// If a later destructor of the thread makes a gated call, that lists it again.
void Gate::Unlist(void* ended) {
  auto* const visitor = static_cast<GateVisitor*>(ended);
  const MutexLock lock(&g_gate.mutex_);
  for (GateVisitor** at = &g_gate.visitors_; *at != nullptr;
       at = &(*at)->next) {
    if (*at != visitor) continue;
    *at = visitor->next;
    break;
  }
  visitor->listed = false;
}

void Gate::WaitUntilOpen(GateVisitor* visitor, uint32_t depth) {
  if (depth > 1 || visitor->exempt) return;
  waits_.fetch_add(1, std::memory_order_relaxed);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  do {
    visitor->inside.store(0, std::memory_order_release);
    while (is_closed()) {
      g_presence.Ring();
      SleepWhileEqual(closed_, 1, NowMs() + kRingAgainMs);
    }
    visitor->inside.store(1, std::memory_order_relaxed);
    // A full fence, since this is the slow path: Close may be under way again.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } while (is_closed());
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  // Acquire: sees what was mapped before Open. Pairs with its release.
  closed_.load(std::memory_order_acquire);
}

bool Gate::IsEmpty() {
  const MutexLock lock(&mutex_);
  for (const GateVisitor* v = visitors_; v != nullptr; v = v->next) {
    // Acquire: pairs with the release in Leave.
    if (v->inside.load(std::memory_order_acquire) != 0) return false;
  }
  return true;
}

bool Gate::Close(uint64_t timeout_ms) {
  constexpr timespec kBrief = {0, 50'000};
  closed_.store(1, std::memory_order_seq_cst);
  const uint64_t until_ms = NowMs() + timeout_ms;
  bool empty = Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0 && IsEmpty();
  while (!empty && NowMs() < until_ms) {
    nanosleep(&kBrief, nullptr);
    empty = IsEmpty();
  }
  if (!empty) Open();
  return empty;
}

void Gate::Open() {
  closed_.store(0, std::memory_order_release);
  WakeSleepers(closed_);
}

void Gate::RestartInChild() {
  new (&mutex_) Mutex();  // a thread of the parent may have held it
  const MutexLock lock(&mutex_);
  visitors_ = nullptr;
  t_gate_visitor.listed = false;
  t_gate_visitor.inside.store(0, std::memory_order_relaxed);
  closed_.store(0, std::memory_order_relaxed);
  waiting_.store(0, std::memory_order_relaxed);
}

}  // namespace fineserve::shim
