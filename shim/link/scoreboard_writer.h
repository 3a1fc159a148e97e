#ifndef SHIM_LINK_SCOREBOARD_WRITER_H_
#define SHIM_LINK_SCOREBOARD_WRITER_H_

#include <atomic>
#include <cstdint>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "shim/host/checked_descriptor.h"

namespace fineserve::shim {

// Bytes of an engine's resident allocations (weights/resident_memory.h).
// Exported allocations are pinned: they are here and stay here. Allocations
// that other processes have open (lent) are pinned for as long as they are
// open.
struct ResidentSum {
  uint32_t here = 0, pinned = 0, out = 0;  // allocations
  uint64_t here_bytes = 0, pinned_bytes = 0, out_bytes = 0;
  uint64_t lent_bytes = 0;  // part of pinned_bytes
  // Parameters that the program has named; the part of them for which it reads
  // another process's copy, so that its own is not here; and the number of
  // processes that read this process's parameters.
  uint64_t frozen_bytes = 0;
  uint32_t dropped = 0;
  uint64_t dropped_bytes = 0;
  uint32_t readers = 0;

  uint64_t moving_bytes() const { return here_bytes - pinned_bytes; }
};

// Writes this process's engine scoreboard: counters and the ring of decisions,
// for `fsctl explain`. The scoreboard is a memfd that the daemon sent or,
// without a daemon, one of our own; its descriptor stays open because
// /proc/PID/fd is where readers look for it.
//
// Thread-safe; Record and the counters take no lock. Without a scoreboard they
// do nothing, except that some counts are kept for the next one. CreateOwn,
// Adopt and SetLink must not run concurrently (the daemon link's lock ensures
// it). A scoreboard that has been replaced stays mapped, because another thread
// may still write it.
class ScoreboardWriter {
 public:
  constexpr ScoreboardWriter() = default;

  // Creates a scoreboard of our own if there is none. False if memory is short.
  bool CreateOwn();

  // Adopts a scoreboard that a daemon made, takes ownership of `fd`, and
  // carries the counters over. Closes `fd` and returns false if the scoreboard
  // is too small.
  bool Adopt(int fd, uint64_t epoch, uint32_t engine_id);

  // `message` says why the process runs without a daemon; it may be null. Only
  // the first message is kept, since readers may be copying it.
  void SetLink(abi::LinkState state, const char* message);

  // Appends to the ring. Drops the record if a thread that is 240 decisions
  // behind is still writing in its place.
  void Record(const abi::DecisionRecord& record);

  // The next three counts are kept for the next scoreboard, and across a fork.
  void CountUse(abi::Hook hook, abi::Path path);
  void CountDeepbind();
  void CountForeignNamespace();

  // Raises the stage of the code that replaces the engine's block pool
  // (fs_kv_progress). The stage only grows, and is kept for the next scoreboard
  // and across a fork, since a child has that code too.
  void RaisePluginStage(uint32_t stage);
  uint32_t plugin_stage() const {
    return plugin_stage_.load(std::memory_order_relaxed);
  }

  void AddSmall(uint64_t count, uint64_t bytes);
  void CountPassed(uint64_t bytes) { Count(&Header::passed_bytes, bytes); }
  // Counts an allocation that waited for memory of the pool.
  void CountRoomWait(uint64_t ms) {
    Count(&Header::room_waits, 1);
    Count(&Header::room_wait_ms, ms);
  }
  // Count memory that the program makes and releases by handle.
  void CountCreated(uint64_t bytes);
  void CountUncreated(uint64_t bytes) {
    Count(&Header::created_bytes, uint64_t{0} - bytes);
  }
  void CountLarge() { Count(&Header::large_allocations, 1); }
  void CountStack() { Count(&Header::stacks_captured, 1); }
  void CountDenied() { Count(&Header::denied_allocations, 1); }
  void CountRedirected(uint64_t bytes) {
    Count(&Header::redirected_allocations, 1);
    Count(&Header::redirected_bytes, bytes);
  }
  void CountReleased(uint64_t bytes) {
    Count(&Header::redirected_bytes, uint64_t{0} - bytes);
  }

  void ShowResident(const ResidentSum& sum);
  // Show the name of the socket on which this process answers others, and the
  // process whose parameters it reads (0: none).
  void ShowSocket(const char (&name)[8]);
  void ShowLender(uint32_t pid);
  void ShowGateWaits(uint64_t waits);

  // For a forked child: forgets the parent's scoreboard and closes its
  // descriptor.
  void AbandonInChild();

  bool has_scoreboard() const { return scoreboard() != nullptr; }

 private:
  using Header = abi::ScoreboardHeader;
  struct Scoreboard {
    Header header;
    abi::Decision decisions[abi::kDecisionCapacity];
  };
  static_assert(sizeof(Scoreboard) == abi::kScoreboardBytes);

  // Acquire: pairs with the release in Install.
  Scoreboard* scoreboard() const {
    return scoreboard_.load(std::memory_order_acquire);
  }
  // Adds to a counter, if there is a scoreboard. Relaxed: no reader concludes
  // from a counter that another write is visible.
  void Count(std::atomic<uint64_t> Header::*counter, uint64_t n) {
    Scoreboard* p = scoreboard();
    if (p == nullptr) return;
    (p->header.*counter).fetch_add(n, std::memory_order_relaxed);
  }
  bool Install(int fd, uint64_t epoch, uint32_t engine_id);
  void CarryCounters(const Scoreboard& from, Scoreboard* to);
  void CopyUses(Scoreboard* to) const;

  std::atomic<Scoreboard*> scoreboard_{nullptr};
  CheckedDescriptor descriptor_;
  // Counts that were made while there was no scoreboard.
  std::atomic<uint64_t> pending_small_{0};
  std::atomic<uint64_t> pending_small_bytes_{0};
  // The counts of hooks, kept whether or not there is a scoreboard: a program
  // looks functions up long before its first large allocation.
  std::atomic<uint32_t> uses_[abi::kHookCount][abi::kPathCount] = {};
  std::atomic<uint32_t> plugin_stage_{0};
  std::atomic<uint64_t> deepbind_{0};
  std::atomic<uint64_t> foreign_namespaces_{0};
};

// Figures on the engine's view scoreboard besides `used`
// (daemon/contract/abi/view_scoreboard.h).
struct ViewGauges {
  uint64_t free_blocks = 0;
  uint64_t used_blocks = 0;
  uint64_t watermark_blocks = 0;
  uint64_t linked_slabs = 0;
  uint64_t leaving_slabs = 0;
  uint64_t steps_begun = 0;
  uint64_t steps_ended = 0;
  uint64_t allocated_blocks = 0;
  uint64_t freed_blocks = 0;
  uint64_t failed_allocations = 0;
  uint64_t watermark_misses = 0;
  uint64_t returned_slabs = 0;
  uint64_t driver_calls_to_activate = 0;
  uint64_t driver_calls_serving = 0;
  uint64_t swaps = 0;
  uint64_t swaps_ns = 0;
  uint64_t longest_swap_ns = 0;
  uint64_t sure_blocks = 0;
  uint64_t first_blocks = 0;
  uint64_t most_blocks = 0;
};

// Writes a view scoreboard: plain stores into memory that the daemon and fsctl
// may read at any time. Its descriptor stays open, because readers look for it
// in /proc/PID/fd when the daemon is dead. Without a scoreboard the functions
// do nothing.
//
// Thread-safe, except for Adopt. A scoreboard that has been replaced stays
// mapped, because another thread may still write it. Trivially destroyed.
class ViewScoreboardWriter {
 public:
  constexpr ViewScoreboardWriter() = default;

  // Adopts a scoreboard that a daemon made for view indices up to `slab_count`,
  // and takes ownership of `fd`. Closes `fd` and returns false if the
  // scoreboard is too small.
  bool Adopt(int fd, uint64_t epoch, uint32_t engine_id, uint32_t slab_count);

  void Show(const ViewGauges& gauges);
  // Shows how many blocks of a slab are in use. Ignores an index out of range.
  void ShowUsed(uint32_t view_index, uint32_t blocks);
  uint64_t SumUsed() const;
  // Returns the shown number of blocks in use of one slab; 0 for an index out
  // of range.
  uint32_t Used(uint32_t view_index) const;
  // Shows whether an engine on several GPUs would take this slab. Ignores an
  // index out of range.
  void ShowWished(uint32_t view_index, bool wished);
  // Shows which memory of a slab a rank has mapped; 0: none. Ignores an index
  // out of range.
  void ShowMapped(uint32_t view_index, uint64_t memory);
  // True if the rank has shown that this memory is mapped.
  bool IsMapped(uint32_t view_index, uint64_t memory) const;

  void Close() { descriptor_.Close(); }

 private:
  struct Scoreboard {
    abi::ViewScoreboardHeader header;
    std::atomic<uint32_t> used[1];  // slab_count + 1
  };

  enum class Words { kUsed, kWished, kMapped };  // in this order

  // Acquire: pairs with the release in Adopt.
  Scoreboard* scoreboard() const {
    return scoreboard_.load(std::memory_order_acquire);
  }
  // A slab's word; null if there is none.
  std::atomic<uint32_t>* Word(Words words, uint32_t view_index) const;

  std::atomic<Scoreboard*> scoreboard_{nullptr};
  std::atomic<uint32_t> slab_count_{0};
  CheckedDescriptor descriptor_;
};

}  // namespace fineserve::shim

#endif  // SHIM_LINK_SCOREBOARD_WRITER_H_
