#ifndef SHIM_REDIRECT_REDIRECTOR_H_
#define SHIM_REDIRECT_REDIRECTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "shim/classify/classify.h"
#include "shim/host/original.h"
#include "shim/host/real_driver.h"
#include "shim/link/daemon_link.h"
#include "shim/link/first_rank.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/range_table.h"
#include "shim/ranks/group_view.h"
#include "shim/redirect/created_memory.h"
#include "shim/redirect/opened_memory.h"
#include "shim/redirect/peer_access.h"
#include "shim/redirect/pointer_queries.h"
#include "shim/redirect/releaser.h"
#include "shim/redirect/virtual_memory.h"
#include "shim/view/engine_view.h"
#include "shim/weights/resident_memory.h"

namespace fineserve::shim {

// Kind of memory that a call requests.
enum class MemoryKind {
  kPlain,          // the current device's, usable at once
  kStreamOrdered,  // the same, but a graph's if the stream is being captured
  kOther,          // pitched or managed: never redirected
};

// An allocation to which the fast path does not apply.
struct AllocationCall {
  abi::Hook hook;
  size_t bytes;
  const void* caller;  // return address of the hooked call
  Original original;
  MemoryKind kind = MemoryKind::kPlain;
  driver::CUstream stream = nullptr;    // of kStreamOrdered
  driver::CUmemoryPool pool = nullptr;  // null: the device's default pool
  // Set for cuMemCreate only, which returns a handle.
  const driver::CUmemAllocationProp* prop = nullptr;
  bool in_scope = false;
};

// Decides how a large allocation is served, carries the decision out, and
// records it. Owns the rest of this room's parts, so that one object holds the
// state of the whole process. Constructed statically and trivially destroyed,
// because hooks are called before the first constructor and after the last
// destructor. Thread-safe.
//
// Fails open: whatever goes wrong on our side, an allocation gets the driver's
// own memory. If the driver has none left and the pool's size is "auto", the
// pool is asked for some (room.cc). The only error that we add is
// CUDA_ERROR_OUT_OF_MEMORY, for KV when the pool is exhausted. The exception is
// a process that was started for a view: it gets CUDA_ERROR_NOT_PERMITTED
// rather than run without one.
class Redirector {
 public:
  // `ranges` holds the redirected allocations, `mappings` the mappings of
  // redirected memory that the program made itself; both must outlive this
  // object. They are separate because the hooks' fast path reads only them.
  constexpr Redirector(RangeTable* ranges, RangeTable* mappings)
      : ranges_(ranges),
        queries_(ranges, mappings),
        peers_(ranges),
        virtual_memory_(&link_, ranges, mappings, &scoreboard_) {}

  driver::CUresult Allocate(const Driver& real, const AllocationCall& call,
                            driver::CUdeviceptr* out);
  // Makes a small allocation with `original`, after the pool has made room if
  // necessary.
  driver::CUresult AllocateSmall(const Driver& real,
                                 const AllocationCall& call);
  // Creates a context with `original`. A starting process first needs the
  // memory of the context itself, for which the pool also makes room.
  driver::CUresult CreateContext(const Driver& real, driver::CUdevice device,
                                 const Original& original);
  // Time for which an allocation that the driver refuses waits for memory of
  // the pool. Heuristics: for a start, or the waking of a sleeper, success
  // after a wait is better than failure, so it waits for as long as the longest
  // requests of others may run; an engine that serves must not block.
  struct RoomWaits {
    uint64_t starting_ms = 120'000;
    uint64_t serving_ms = 1'000;
    uint64_t restart_ms = 4'000;  // for the next daemon
    uint64_t silent_ms = 5'000;   // then one line says what is waited for
  };
  void set_room_waits(const RoomWaits& waits) { room_waits_ = waits; }

  // Asks the pool for the memory that `attempt() → CUresult` needs, and repeats
  // the attempt while memory arrives and the attempt is refused (room.cc).
  // `refused` is the attempt's result so far, which is returned if no memory
  // arrives.
  template <typename Try>
  driver::CUresult TryWithRoom(uint64_t bytes, driver::CUresult refused,
                               Try attempt) {
    return TryAgain(
        bytes, [](void* a) { return (*static_cast<Try*>(a))(); }, &attempt,
        refused);
  }

  // Calls EngineView::Resume; waits for room on a full GPU.
  int ResumeView(const Driver& real);

  // Makes large allocations that are not KV resident from now on. `resident`
  // must outlive this object.
  void KeepResident(ResidentMemory* resident) {
    resident_ = resident;
    releaser_.set_resident(resident);
  }
  // Null if this process cannot be evicted.
  ResidentMemory* resident() { return resident_; }

  // ShareHandle and ShareAddress make `original`'s call for memory that is not
  // redirected. Redirected memory cannot be exported or bound to a multicast
  // object; legacy IPC, DMA-BUF and multicast of its addresses fail with
  // `refusal`, as they do for memory of other processes. Resident memory stays
  // on the GPU once it has been shared, unless by legacy IPC
  // (shim/eviction/sharer.h). Not for a forked child.
  driver::CUresult ShareHandle(const driver::EntryPoints& entry, abi::Hook hook,
                               driver::CUmemGenericAllocationHandle handle,
                               const Original& original);
  driver::CUresult ShareAddress(const driver::EntryPoints& entry,
                                abi::Hook hook, driver::CUdeviceptr address,
                                driver::CUresult refusal,
                                const Original& original);

  // If true, only Allocate may be called, which passes the call on: all other
  // locks may have been held at the fork. The hooks check this in one place
  // (process_state.h, Ours).
  bool forked() const { return forked_.load(std::memory_order_relaxed); }
  const PointerQueries& queries() const { return queries_; }
  // Answers cuMemRelease.
  driver::CUresult Release(const driver::EntryPoints& entry,
                           driver::CUmemGenericAllocationHandle handle,
                           const Original& original);
  // False while the program holds no handle of memory that it has made.
  bool has_created() const {
    return !created_.empty() || !virtual_memory_.empty();
  }
  Releaser& releaser() { return releaser_; }
  PeerAccess& peers() { return peers_; }
  OpenedMemory& opened() { return opened_; }
  VirtualMemory& virtual_memory() { return virtual_memory_; }

  // Called in the child of a fork. If the parent had joined a daemon, or tried
  // to, the child passes everything through for good: its CUDA state is
  // unusable, and a lock that was held at the fork stays held. Otherwise the
  // child starts like a new process.
  void AfterForkInChild();

  // Declares that this process was started for a view. Device allocations of
  // kGateBytes or more then fail until the engine's block pool has been
  // replaced by code that uses only leased blocks; after that, KV without a
  // view fails. A helper of an engine is bound by the latter rule only.
  void RequireView() { view_required_.store(true, std::memory_order_relaxed); }
  // True if allocations are being refused because the block pool has not been
  // replaced yet.
  bool gate_closed() const {
    return view_required_.load(std::memory_order_relaxed) &&
           !helper_.load(std::memory_order_relaxed) &&
           scoreboard_.plugin_stage() < FS_KV_POOL_REPLACED;
  }
  static constexpr size_t kGateBytes = size_t{1} << 20;

  ScoreboardWriter& scoreboard() { return scoreboard_; }
  constexpr EngineView& view() { return view_; }
  GroupView& group() { return group_; }
  DaemonLink& link() { return link_; }
  FirstRank& first_rank() { return first_rank_; }
  // Copies the name that all processes of this engine share; on several GPUs,
  // its name at the first rank's daemon.
  void CopyEngineName(char (&name)[abi::kNameBytes]);
  DeclaredSizes& declared() { return declared_; }

 private:
  void ShowChild();
  bool DeclineOtherGpu(abi::DecisionRecord* record);
  void JoinDaemon(const Driver& real, const AllocationCall& call);
  RuleMatch Inspect(const AllocationCall& call, abi::DecisionRecord* record);
  bool IsRefused(const AllocationCall& call);
  void Refuse(const AllocationCall& call, abi::DecisionRecord* record);
  bool Redirect(const Driver& real, const AllocationCall& call,
                abi::DecisionRecord* record, driver::CUdeviceptr* out);
  MapResult AddTensor(const Driver& real, uint64_t bytes, Redirection* out);
  MapResult MapKv(const Driver& real, const AllocationCall& call,
                  Redirection* out);
  MapResult MapOnce(const Driver& real, const AllocationCall& call,
                    Redirection* out);
  MapResult Placed(const MapResult& mapped, const Driver& real,
                   const Redirection& range);
  bool Conclude(const MapResult& mapped, const Redirection& range,
                abi::DecisionRecord* record, driver::CUdeviceptr* out);
  bool MakeResident(const Driver& real, const AllocationCall& call,
                    driver::CUdeviceptr* out);
  void NotePassed(const AllocationCall& call, driver::CUdeviceptr address);
  bool IsForPool(const Driver& real, const AllocationCall& call);
  uint64_t RoomWaitMs() const;
  uint64_t AskRoom(uint64_t bytes, uint64_t wait_ms, uint64_t until_ms);
  using TryCall = driver::CUresult (*)(void* attempt);
  driver::CUresult TryAgain(uint64_t bytes, TryCall call, void* attempt,
                            driver::CUresult refused);
  void TellShortage(const Driver& real, const AllocationCall& call,
                    abi::Verdict verdict);
  driver::CUresult RefuseSharing(abi::Hook hook, uint64_t address,
                                 uint64_t bytes, driver::CUresult result);

  ScoreboardWriter scoreboard_;
  DeclaredSizes declared_;
  RuleMatcher rules_;
  DaemonLink link_{&scoreboard_, &declared_, &rules_};
  RangeTable* const ranges_;
  PointerQueries queries_;
  PeerAccess peers_;
  VirtualMemory virtual_memory_;
  CreatedMemory created_;  // the driver's
  EngineView view_{&link_, &scoreboard_};
  GroupView group_;
  FirstRank first_rank_;
  std::atomic<bool> forked_{false};
  OpenedMemory opened_{ranges_, &peers_};
  Releaser releaser_{ranges_, &link_, &view_, &opened_, &peers_, &scoreboard_};
  std::atomic<bool> view_required_{false};
  std::atomic<bool> helper_{false};  // an engine started this process
  std::atomic<bool> refusal_warned_{false};
  std::atomic<bool> sharing_warned_{false};
  std::atomic<bool> other_gpu_warned_{false};
  std::atomic<uint64_t> shortage_told_ms_{0};  // 0: not yet
  RoomWaits room_waits_;
  ResidentMemory* resident_ = nullptr;
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_REDIRECTOR_H_
