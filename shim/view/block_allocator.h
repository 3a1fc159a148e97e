#ifndef SHIM_VIEW_BLOCK_ALLOCATOR_H_
#define SHIM_VIEW_BLOCK_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// Hands out the blocks of leased slabs, for an engine that has no allocator of
// its own. Neither a system call nor a lock nor memory of anybody else's: a
// block costs a few nanoseconds (scripts/bench blocks).
//
// Blocks freed of late are used again first, as they are warm. Then blocks come
// from one slab until it is full, and from the densest after it (by powers of
// two of free blocks), so that slabs empty and can leave.
//
//   kUnleased ─Link─► kLinked ─Leave─► kLeaving ─TakeDrained─► kUnleased
//
// A leaving slab hands out nothing; it is drained when its last block has been
// freed and every step begun by then has ended, because a step in flight may
// still write a freed block (design.md §3.9).
//
// Confined to one thread at a time. Constructed empty; Create maps all memory
// that it will ever use.
class BlockAllocator {
 public:
  constexpr BlockAllocator() = default;
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  // For view indices 1 … slab_count of a format (abi::BlocksOfView). False,
  // without memory, if ids would exceed 32 bits, or a page exceeds the plane.
  bool Create(uint32_t slab_count, uint64_t plane_bytes, uint64_t page_bytes);

  // Begins to hand out a leased slab's blocks. False for an index that is out
  // of range or not kUnleased.
  bool Link(uint32_t view_index);

  // Hands out no more of its blocks. False if it is not kLinked.
  bool Leave(uint32_t view_index);

  // Fills `ids` with `count` blocks, or leaves everything alone and returns
  // false if there are fewer.
  bool Allocate(uint32_t count, uint32_t* ids);

  // Takes blocks back; returns how many. Less than `count` means that
  // ids[returned] was not allocated; it and what follows is left alone.
  uint32_t Free(uint32_t count, const uint32_t* ids);

  // The step fence: steps are numbered from 1 and end in the order in which
  // they begin. A step ends when the device has executed it.
  uint64_t BeginStep() { return ++steps_begun_; }
  void EndStep(uint64_t step);

  // Moves up to `capacity` drained slabs to kUnleased and returns their view
  // indices: they may be given back.
  uint32_t TakeDrained(uint32_t capacity, uint32_t* view_indices);

  uint32_t free_blocks() const { return free_blocks_; }
  // Allocated blocks of a slab; of a leaving one, what it still waits for.
  uint32_t UsedBlocks(uint32_t view_index);

 private:
  enum class State : uint8_t { kUnleased, kLinked, kLeaving };

  struct Slab {
    uint32_t first;   // block id
    uint32_t blocks;  // usable ones
    uint32_t free;    // in `bits`; those in recent_ are not
    uint32_t hint;    // no word of `bits` before it has a free block
    uint32_t next;    // in its list: of a bucket, or of leaving slabs
    uint32_t previous;
    uint64_t barrier;  // leaving: the step that must have ended
    uint64_t* bits;    // 1: free
    State state;
  };

  // Lists of linked slabs other than the current one, by bit width of their
  // free count; bucket 0 holds the full ones and is never looked at. One more
  // for the leaving.
  static constexpr uint32_t kBuckets = 33;
  static constexpr uint32_t kLeavingList = kBuckets;
  static constexpr uint32_t kNone = 0;  // index 0 is the engine's scratch

  // Heuristic: 1 KiB of ids. Sorting a block into its slab costs five times
  // what the stack does, so it should happen to few (bench/micro/blocks_bench).
  static constexpr uint32_t kRecent = 256;

  bool IsUsed(uint32_t id) const {
    return (used_[id / 64] >> (id % 64) & 1) != 0;
  }
  void FlipUsed(uint32_t id) { used_[id / 64] ^= uint64_t{1} << id % 64; }
  uint32_t ViewOf(uint32_t id) const;
  uint32_t TakeFrom(Slab* slab, uint32_t count, uint32_t* ids);
  void ReturnToSlab(uint32_t id);
  void SortInRecent();
  void ChooseCurrent();
  void Insert(uint32_t list, uint32_t view_index);
  void Remove(uint32_t list, uint32_t view_index);

  Slab* slabs_ = nullptr;     // by view index
  uint64_t* used_ = nullptr;  // bit per block id: handed out
  uint64_t id_count_ = 0;
  void* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  uint32_t slab_count_ = 0;
  uint32_t current_ = kNone;
  uint32_t recent_count_ = 0;
  uint32_t free_blocks_ = 0;
  double views_per_block_ = 0;
  uint64_t steps_begun_ = 0;
  uint64_t steps_ended_ = 0;
  uint64_t nonempty_ = 0;  // bit b: bucket b has a slab
  uint32_t heads_[kBuckets + 1] = {};
  uint32_t recent_[kRecent] = {};  // freed, of linked slabs; top at the end
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_BLOCK_ALLOCATOR_H_
