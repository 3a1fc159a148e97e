#ifndef SHIM_REDIRECT_REDIRECTOR_H_
#define SHIM_REDIRECT_REDIRECTOR_H_

#include <cstddef>
#include <cstdint>

#include "daemon/abi/engine_scoreboard.h"
#include "shim/classify/classify.h"
#include "shim/host/original.h"
#include "shim/host/real_driver.h"
#include "shim/link/daemon_link.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/range_table.h"
#include "shim/redirect/handle_calls.h"
#include "shim/redirect/pointer_queries.h"
#include "shim/redirect/releaser.h"
#include "shim/redirect/virtual_memory.h"
#include "shim/view/engine_view.h"

namespace fineserve::shim {

// What the memory of a call has to be for slabs to stand in for it.
enum class MemoryKind {
  kPlain,          // the current device's, to be used at once
  kStreamOrdered,  // the same, unless the stream is being captured
  kOther,          // pitched, managed: never redirected
};

// One allocation that the fast path did not settle.
struct AllocationCall {
  abi::Hook hook;
  size_t bytes;
  const void* caller;  // return address of the hooked call
  Original original;
  MemoryKind kind = MemoryKind::kPlain;
  driver::CUstream stream = nullptr;    // of kStreamOrdered
  driver::CUmemoryPool pool = nullptr;  // the same; null: the device's own
  // Of cuMemCreate, whose answer is a handle; else null.
  const driver::CUmemAllocationProp* prop = nullptr;
  bool in_scope = false;
};

// Decides about large allocations and about frees of redirected ranges, acts,
// and records what it did. The state of the process as a whole: constructed
// statically, trivially destroyed (hooks are called before the first
// constructor and after the last destructor), thread-safe.
//
// Fails open: whatever goes wrong on our side, the program gets the driver's
// own memory. The one answer of our own is CUDA_ERROR_OUT_OF_MEMORY for KV
// when the pool is exhausted. A process that was started for a view is the
// exception: it gets CUDA_ERROR_NOT_PERMITTED rather than run without one.
class Redirector {
 public:
  // Both outlive the allocator: redirected allocations, and the program's own
  // mappings of redirected memory. They lie apart because hooks read them
  // without any of the rest.
  constexpr Redirector(RangeTable* ranges, RangeTable* mappings)
      : ranges_(ranges),
        queries_(ranges, mappings),
        virtual_memory_(&link_, mappings) {}

  driver::CUresult Allocate(const Driver& real, const AllocationCall& call,
                            driver::CUdeviceptr* out);
  // A forked child asks the driver itself: our tables' locks may be held.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }
  const PointerQueries& queries() const { return queries_; }
  Releaser& releaser() { return releaser_; }
  HandleCalls& handles() { return handles_; }
  bool holds_handles() const { return !virtual_memory_.empty(); }

  // The child's half of fork(). If the parent had joined (or tried), the child
  // is pass-through for good: its CUDA state is not usable and its locks may
  // be held by nobody. Otherwise it starts afresh.
  void AfterForkInChild();

  // The process was started for a view: until code that uses leased blocks
  // only has replaced the engine's block pool, no device memory of kGateBytes
  // and more is given out, and no KV without a view after that.
  void RequireView() { view_required_.store(true, std::memory_order_relaxed); }
  // Whether allocations are being refused for that.
  bool gate_closed() const {
    return view_required_.load(std::memory_order_relaxed) &&
           scoreboard_.plugin_stage() < FS_KV_POOL_REPLACED;
  }
  static constexpr size_t kGateBytes = size_t{1} << 20;

  ScoreboardWriter& scoreboard() { return scoreboard_; }
  EngineView& view() { return view_; }
  DaemonLink& link() { return link_; }
  DeclaredSizes& declared() { return declared_; }

 private:
  void JoinDaemon(const Driver& real, const AllocationCall& call);
  RuleMatch Inspect(const AllocationCall& call, abi::DecisionRecord* record);
  bool IsRefused(const AllocationCall& call);
  void Refuse(const AllocationCall& call, abi::DecisionRecord* record);
  bool Redirect(const Driver& real, const AllocationCall& call,
                abi::DecisionRecord* record, driver::CUdeviceptr* out);
  MapResult MapKv(const Driver& real, const AllocationCall& call,
                  Redirection* out);
  MapResult MapOnce(const Driver& real, const AllocationCall& call,
                    Redirection* out);
  MapResult Placed(const MapResult& mapped, const Driver& real,
                   const Redirection& range);
  bool Conclude(const MapResult& mapped, const Redirection& range,
                abi::DecisionRecord* record, driver::CUdeviceptr* out);

  ScoreboardWriter scoreboard_;
  DeclaredSizes declared_;
  RuleMatcher rules_;
  DaemonLink link_{&scoreboard_, &declared_, &rules_};
  RangeTable* const ranges_;
  PointerQueries queries_;
  VirtualMemory virtual_memory_;
  EngineView view_{&link_, &scoreboard_};
  std::atomic<bool> forked_{false};
  Releaser releaser_{ranges_, &link_, &view_, &scoreboard_, &forked_};
  HandleCalls handles_{&virtual_memory_, &queries_, ranges_, &scoreboard_,
                       &forked_};
  std::atomic<bool> view_required_{false};
  std::atomic<bool> refusal_warned_{false};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_REDIRECTOR_H_
