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
#include "shim/map/whole_mapping.h"
#include "shim/redirect/deferred_frees.h"
#include "shim/redirect/pointer_queries.h"
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
      : ranges_(ranges), mappings_(mappings) {}

  driver::CUresult Allocate(const Driver& real, const AllocationCall& call,
                            driver::CUdeviceptr* out);
  driver::CUresult Free(const Driver& real, driver::CUdeviceptr address);

  // The free of a redirected range takes effect, for other engines too, once
  // the work before it on `stream` is done. `original` is asked about every
  // other address.
  driver::CUresult FreeInStreamOrder(const Driver& real, abi::Hook hook,
                                     driver::CUdeviceptr address,
                                     driver::CUstream stream,
                                     const Original& original);

  // Gives back what was freed in stream order and has passed meanwhile. True
  // if that was anything.
  bool CollectDeferred(const Driver& real);
  bool has_deferred() const { return !deferred_.empty(); }

  // The rest of the cuMemCreate family, for what may be ours.
  driver::CUresult MapHandle(const Driver& real, driver::CUdeviceptr address,
                             uint64_t bytes, uint64_t offset,
                             driver::CUmemGenericAllocationHandle handle,
                             unsigned long long flags,
                             const Original& original);
  driver::CUresult UnmapRange(const Driver& real, driver::CUdeviceptr address,
                              uint64_t bytes, const Original& original);
  driver::CUresult ReleaseHandle(const Driver& real,
                                 driver::CUmemGenericAllocationHandle handle,
                                 const Original& original);
  driver::CUresult ExportHandle(const Driver& real,
                                driver::CUmemGenericAllocationHandle handle,
                                const Original& original);
  driver::CUresult RetainHandle(const Driver& real,
                                driver::CUmemGenericAllocationHandle* out,
                                driver::CUdeviceptr address,
                                const Original& original);
  driver::CUresult HandleProperties(const Driver& real,
                                    driver::CUmemAllocationProp* out,
                                    driver::CUmemGenericAllocationHandle handle,
                                    const Original& original);
  // Legacy IPC and DMA-BUF of an address: `refusal` for redirected memory.
  driver::CUresult ShareAddress(const Driver& real, abi::Hook hook,
                                driver::CUdeviceptr address,
                                driver::CUresult refusal,
                                const Original& original);

  // A forked child asks the driver itself: our tables' locks may be held.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }
  const PointerQueries& queries() const { return queries_; }
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
  bool WaitForDeferred(const Driver& real);
  MapResult MapKv(const Driver& real, const AllocationCall& call,
                  Redirection* out);
  MapResult MapOnce(const Driver& real, const AllocationCall& call,
                    Redirection* out);
  MapResult Placed(const MapResult& mapped, const Driver& real,
                   const Redirection& range);
  driver::CUresult Unmap(const Driver& real, const Redirection& range,
                         bool waits);
  void RecordEnd(abi::Hook hook, const Ended& ended);
  driver::CUresult RefuseSharing(abi::Hook hook, uint64_t address,
                                 uint64_t bytes, driver::CUresult result);
  bool Conclude(const MapResult& mapped, const Redirection& range,
                abi::DecisionRecord* record, driver::CUdeviceptr* out);
  driver::CUresult Release(const Driver& real, abi::Hook hook,
                           const Redirection& range);
  driver::CUresult Defer(const Driver& real, abi::Hook hook,
                         const Redirection& range, driver::CUstream stream);
  void RecordFree(abi::Hook hook, const Redirection& range,
                  abi::Verdict verdict, driver::CUresult result);

  ScoreboardWriter scoreboard_;
  DeclaredSizes declared_;
  RuleMatcher rules_;
  DaemonLink link_{&scoreboard_, &declared_, &rules_};
  RangeTable* const ranges_;
  RangeTable* const mappings_;
  PointerQueries queries_{ranges_, mappings_};
  VirtualMemory virtual_memory_{&link_, mappings_};
  EngineView view_{&link_, &scoreboard_};
  DeferredFrees deferred_;
  std::atomic<bool> forked_{false};
  std::atomic<bool> sharing_warned_{false};
  std::atomic<bool> view_required_{false};
  std::atomic<bool> refusal_warned_{false};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_REDIRECTOR_H_
