#ifndef SHIM_VIEW_VIEW_STATE_H_
#define SHIM_VIEW_VIEW_STATE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "shim/fineserve_kv.h"
#include "shim/link/daemon_link.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/view_mapping.h"
#include "shim/view/block_allocator.h"
#include "shim/view/view_leases.h"

namespace fineserve::shim {

// Minimum time between two messages of an engine that continues to lack slabs.
// It must repeat its request, because daemons regard an engine that does not
// ask as idle. Heuristic: about a step.
inline constexpr uint64_t kAskAgainMs = 50;

// An engine's view as a state machine: its leases, its steps, and the blocks
// that our allocator has handed out. It takes events (a look at the slab table,
// blocks used and freed, steps begun and ended) and derives their consequences
// (slabs to return, how many are wanted); EngineView maps, unmaps and sends. It
// makes no system call once it is open, and time is given in milliseconds of
// CLOCK_MONOTONIC.
//
// Confined to one thread at a time. Constant-initialised, trivially destroyed:
// Close frees the memory.
class ViewState {
 public:
  using Hold = ViewLeases::Hold;

  constexpr ViewState() = default;

  // False if the slab table is not usable.
  bool OpenLeases(const ViewGrant& grant, const ViewShape& shape);
  // False if memory is short.
  bool OpenBlocks(const ViewGrant& grant, const ViewShape& shape);
  void Close();

  ViewLeases& leases() { return leases_; }
  const ViewLeases& leases() const { return leases_; }
  const BlockAllocator& blocks() const { return *blocks_; }

  // True if the engine begins steps, which means that it uses our allocator. It
  // then uses our allocator in its next view too, before the first step there.
  bool has_steps() const { return has_steps_; }
  // A step is about to begin.
  void ExpectStep(uint64_t now_ms) {
    has_steps_ = true;
    active_ms_ = now_ms;
  }
  bool in_flight() const { return steps_begun_ != steps_ended_; }
  // Number of blocks in use, if our allocator is used.
  uint64_t used_blocks() const { return used_blocks_; }

  // Brings the leases up to date with the slab table. If our allocator is used,
  // slabs that were asked back hand out no further blocks, and drained ones
  // become Hold::kDone, which means that they must be returned.
  void Look();
  // Starts handing out the blocks of a slab that has arrived.
  void Link(uint32_t v);

  uint64_t BeginStep(uint64_t now_ms);
  // False if the step is not in flight.
  bool EndStep(uint64_t step, uint64_t now_ms);
  // False if fewer blocks are free.
  bool Allocate(uint32_t count, uint32_t* ids) {
    if (!blocks_->Allocate(count, ids)) return false;
    used_blocks_ += count;
    allocated_blocks_ += count;
    starving_ = false;
    if (count >= shortfall_) shortfall_ = 0;
    return true;
  }
  // Returns how many blocks it freed; this is less than `count` if it met a
  // block that is not allocated.
  uint32_t Free(uint32_t count, const uint32_t* ids) {
    const uint32_t freed = blocks_->Free(count, ids);
    used_blocks_ -= freed;
    freed_blocks_ += freed;
    if (blocks_->emptied_slabs() > 0) TakeDrained();
    return freed;
  }
  // Notes that an allocation of `count` blocks failed.
  void Starve(uint32_t count, uint64_t now_ms);
  // True if, between two steps, the engine wants less than it did, or a slab
  // has drained.
  bool HasLess() const {
    return !in_flight() &&
           (leases_.count(Hold::kDone) > 0 || StayingBlocks() <= less_below_);
  }

  void set_watermark(uint64_t blocks) { watermark_blocks_ = blocks; }
  // For an engine with its own block pool.
  void Want(uint32_t slabs, uint64_t now_ms) {
    want_ = slabs;
    if (slabs > leases_.leased()) AskAgain(now_ms);
  }
  // True if the want must be sent to the daemon although it has not changed:
  // while the pool is contended, the daemon regards an engine that does not use
  // its slabs as idle until it asks again.
  bool TakeAskAgain() { return std::exchange(ask_again_, false); }
  uint32_t want() const { return want_; }
  // Computes what an engine that uses our allocator wants: the slabs that are
  // leaving, since none of their blocks can be handed out again, and slabs for
  // its other used blocks and the room that it needs.
  void UpdateWant(uint64_t now_ms);
  // Time at which UpdateWant may compute less than now although nothing
  // happens; UINT64_MAX for never.
  uint64_t less_at_ms() const { return less_at_ms_; }
  // If there are fewer free blocks than this, there are too few.
  uint64_t needed_blocks() const;

  uint32_t UsedBlocks(uint32_t v) { return blocks_->UsedBlocks(v); }
  // Sets what this object knows.
  void Show(ViewGauges* gauges) const;
  void Show(fs_kv_stats* stats) const;

 private:
  int64_t StayingBlocks() const {
    return static_cast<int64_t>(used_blocks_ - blocks_->leaving_blocks());
  }
  uint64_t Room(uint64_t now_ms);
  void TakeDrained();
  void AskAgain(uint64_t now_ms);

  ViewLeases leases_;
  // Constructed in raw storage, so that no destructor runs at exit.
  BlockAllocator* blocks_ = nullptr;
  alignas(BlockAllocator) std::byte
      blocks_storage_[sizeof(BlockAllocator)] = {};
  uint64_t used_blocks_ = 0;
  uint64_t allocated_blocks_ = 0;
  uint64_t freed_blocks_ = 0;
  uint64_t failed_allocations_ = 0;
  uint64_t watermark_misses_ = 0;
  uint64_t watermark_blocks_ = 0;  // kept for the next view
  bool has_steps_ = false;         // likewise
  uint64_t steps_begun_ = 0;
  uint64_t steps_ended_ = 0;
  uint64_t begun_ms_ = 0;   // the last step
  uint64_t active_ms_ = 0;  // when a step last began or ended
  // Number of blocks that the largest recent failed allocation needed, and the
  // time until which that number counts.
  uint32_t shortfall_ = 0;
  uint64_t shortfall_until_ms_ = 0;
  bool starving_ = false;  // the last allocation failed
  bool ask_again_ = false;
  uint64_t asked_again_ms_ = 0;
  uint32_t cap_slabs_ = 0;
  uint64_t least_blocks_ = 1;  // usable ones of the slab that has the fewest
  uint32_t want_ = 0;
  int64_t less_below_ = -1;  // blocks in slabs that stay
  uint64_t less_at_ms_ = UINT64_MAX;
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_VIEW_STATE_H_
