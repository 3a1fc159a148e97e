#ifndef TOOLS_LAB_SIM_SIMULATED_ENGINE_SLAB_BLOCKS_H_
#define TOOLS_LAB_SIM_SIMULATED_ENGINE_SLAB_BLOCKS_H_

#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace fineserve::sim {

// The KV blocks of one engine, grouped by slab. All blocks of a slab are equal,
// so only their number counts. As the shim's allocator does
// (shim/view/block_allocator.h), it fills one slab and then takes one of the
// densest slabs with room, by powers of two of free blocks; among several, the
// one that reached its count last. Each step looks for the densest slab again,
// because an engine shows its blocks by slab then. No block of a slab that is
// leaving is handed out. The order in which blocks were freed makes no
// difference here. Confined to one thread.
class SlabBlocks {
 public:
  // Blocks of one slab.
  struct Run {
    uint32_t slab;
    uint32_t blocks;
  };
  // A sequence's blocks, in the order in which it got them.
  using Runs = std::vector<Run>;

  explicit SlabBlocks(uint32_t slabs) : slabs_(slabs) { shelves_.fill(kNone); }

  // From now on, hands out the slab's blocks. The slab must not be linked.
  void Link(uint32_t slab, uint32_t blocks);
  // Stops handing out the slab's blocks. The slab must be linked.
  void Leave(uint32_t slab);
  bool linked(uint32_t slab) const {
    return slabs_[slab].blocks > 0 && !slabs_[slab].leaves;
  }

  // Begins a step: the densest slab is chosen again.
  void BeginStep();
  // If fewer blocks are free, returns false and changes nothing but the
  // shortfall.
  bool Allocate(uint32_t count, Runs* to);
  void Free(Runs* runs);

  // Returns the slabs that are leaving and have no used block; each slab is
  // reported once.
  std::vector<uint32_t> TakeDrained() { return std::exchange(drained_, {}); }
  bool any_drained() const { return !drained_.empty(); }
  // Returns the greatest number of blocks that an allocation since the last
  // call lacked; 0: none failed.
  uint32_t TakeShortfall() { return std::exchange(shortfall_, 0); }

  uint32_t UsedBlocks(uint32_t slab) const { return slabs_[slab].used; }
  uint64_t used_blocks() const { return used_; }
  uint64_t free_blocks() const { return free_; }
  uint64_t linked_blocks() const { return linked_; }
  // Number of used blocks in slabs that are leaving.
  uint64_t leaving_blocks() const { return leaving_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // One shelf for each bit width of a slab's number of free blocks. Shelf 0
  // holds full slabs.
  static constexpr uint32_t kShelves = 33;
  struct Slab {
    uint32_t blocks = 0;  // usable; 0: not linked
    uint32_t used = 0;
    bool leaves = false;
    uint32_t next = kNone, previous = kNone;  // on its shelf
  };
  uint32_t FreeIn(uint32_t slab) const {
    return slabs_[slab].blocks - slabs_[slab].used;
  }
  uint32_t ShelfOf(uint32_t slab) const {
    return static_cast<uint32_t>(std::bit_width(FreeIn(slab)));
  }
  void Shelve(uint32_t slab);
  void Unshelve(uint32_t slab);
  void ChooseCurrent();

  std::vector<Slab> slabs_;
  // The first linked slab of each shelf, which is the slab that was put there
  // last. The current slab is on no shelf.
  std::array<uint32_t, kShelves> shelves_;
  uint32_t current_ = kNone;
  std::vector<uint32_t> drained_;
  uint32_t shortfall_ = 0;
  uint64_t used_ = 0, free_ = 0, linked_ = 0, leaving_ = 0;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_SIMULATED_ENGINE_SLAB_BLOCKS_H_
