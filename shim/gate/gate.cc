#include "shim/gate/gate.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "daemon/contract/abi/transport.h"
#include "shim/gate/presence.h"
#include "shim/host/private_futex.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {

constinit Gate g_gate;

namespace {

// Key whose destructor (Unlist) runs at the end of each thread that was listed.
pthread_key_t g_visitor_key;

// Interval at which a waiting call asks for the memory.
constexpr uint64_t kRingAgainMs = 1'000;

long Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool Gate::Prepare() {
  return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
         pthread_key_create(&g_visitor_key, &Gate::Unlist) == 0;
}

Gate::Entry Gate::EnterSlowly() {
  GateVisitor& visitor = t_gate_visitor;
  const uint32_t place = visitor.place.load(std::memory_order_relaxed);
  if (place == GateVisitor::kUnlisted) List(&visitor);
  if (place == GateVisitor::kInside || place == GateVisitor::kExempt) {
    return Entry::kBeside;
  }
  if (TryEnter()) return Entry::kInside;
  waits_.fetch_add(1, std::memory_order_relaxed);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  bool for_good = false;
  do {
    while (closed_.load(std::memory_order_acquire) == kClosed) {
      g_presence.Ring();
      SleepWhileEqual(closed_, kClosed, NowMs() + kRingAgainMs);
    }
    for_good = closed_.load(std::memory_order_acquire) == kClosedForGood;
  } while (!for_good && !TryEnter());
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return for_good ? Entry::kNever : Entry::kInside;
}

void Gate::List(GateVisitor* visitor) {
  pthread_setspecific(g_visitor_key, visitor);
  const MutexLock lock(&mutex_);
  visitor->next = visitors_;
  visitors_ = visitor;
  visitor->place.store(GateVisitor::kOutside, std::memory_order_relaxed);
}

// Removes an ending thread from the list. If a later destructor of the thread
// makes a gated call, that call lists the thread again.
void Gate::Unlist(void* ended) {
  auto* const visitor = static_cast<GateVisitor*>(ended);
  const MutexLock lock(&g_gate.mutex_);
  for (GateVisitor** at = &g_gate.visitors_; *at != nullptr;
       at = &(*at)->next) {
    if (*at != visitor) continue;
    *at = visitor->next;
    break;
  }
  visitor->place.store(GateVisitor::kUnlisted, std::memory_order_relaxed);
}

bool Gate::IsEmpty() {
  const MutexLock lock(&mutex_);
  for (const GateVisitor* v = visitors_; v != nullptr; v = v->next) {
    // Acquire: pairs with the release in Leave.
    if (v->place.load(std::memory_order_acquire) == GateVisitor::kInside) {
      return false;
    }
  }
  return true;
}

bool Gate::Close(uint64_t timeout_ms) {
  constexpr timespec kBrief = {0, 50'000};
  closed_.store(kClosed, std::memory_order_seq_cst);
  const uint64_t until_ms = NowMs() + timeout_ms;
  const bool seen = Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
  bool empty = seen && IsEmpty();
  while (seen && !empty && NowMs() < until_ms) {
    nanosleep(&kBrief, nullptr);
    empty = IsEmpty();
  }
  // A thread that keeps the gate open or begins a capture was inside. Either
  // its change is seen here, or the thread found the gate closed and waits.
  if (!empty || captures() || kept_open_by() != nullptr) {
    Open();
    return false;
  }
  return true;
}

void Gate::CloseForGood() {
  closed_.store(kClosedForGood, std::memory_order_release);
  WakeSleepers(closed_);
}

void Gate::KeepOpen(const char* function) {
  Pass([&] {
    const MutexLock lock(&mutex_);
    if (kept_open_by() != nullptr) return false;
    abi::CopyText(name_, function);
    kept_open_by_.store(name_, std::memory_order_release);
    return true;
  });
}

Gate::Capture Gate::CaptureIn(driver::CUstream stream) {
  // The default stream can be given as null, or as the legacy or the per-thread
  // stream.
  const bool is_named = reinterpret_cast<uintptr_t>(stream) <= 2;
  return is_named ? Capture{nullptr, pthread_self()} : Capture{stream, {}};
}

void Gate::CaptureBegins(driver::CUstream stream) {
  const MutexLock lock(&mutex_);
  if (capture_count_ < kMostCaptures)
    captures_[capture_count_++] = CaptureIn(stream);
}

void Gate::CaptureEnds(driver::CUstream stream) {
  const Capture ended = CaptureIn(stream);
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < capture_count_; ++i) {
    if (captures_[i].stream != ended.stream ||
        captures_[i].thread != ended.thread) {
      continue;
    }
    captures_[i] = captures_[--capture_count_];
    return;
  }
}

void Gate::Open() {
  closed_.store(0, std::memory_order_release);
  WakeSleepers(closed_);
}

void Gate::RestartInChild() {
  new (&mutex_) Mutex();  // a thread of the parent may have held it
  const MutexLock lock(&mutex_);
  // Only the thread that forked exists here, and it may have forked within a
  // call.
  GateVisitor& visitor = t_gate_visitor;
  visitors_ = nullptr;
  if (visitor.place.load(std::memory_order_relaxed) <= GateVisitor::kInside) {
    visitor.next = nullptr;
    visitors_ = &visitor;
  }
  closed_.store(0, std::memory_order_relaxed);
  waiting_.store(0, std::memory_order_relaxed);
  capture_count_ = 0;
}

}  // namespace fineserve::shim
