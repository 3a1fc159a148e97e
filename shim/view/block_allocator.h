#ifndef SHIM_VIEW_BLOCK_ALLOCATOR_H_
#define SHIM_VIEW_BLOCK_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// Hands out the blocks of leased slabs, for an engine that has no allocator of
// its own. It makes no system call, takes no lock and touches no shared memory,
// so a block costs a few nanoseconds (scripts/bench blocks).
//
// Blocks that were freed recently are used first, because they are warm. Then
// blocks come from one slab until it is full, and next from the densest one (by
// powers of two of free blocks), so that other slabs empty and can be returned.
//
//   kUnleased ─Link─► kLinked ─Leave─► kLeaving ─TakeDrained─► kUnleased
//
// No block of a leaving slab is handed out. The slab is drained when its last
// block has been freed and every step that had begun by then has ended, because
// a step in flight may still write a freed block (design note 0000, Memory, 9).
//
// Confined to one thread at a time. It is constructed empty; Create maps all
// the memory that it will ever use.
class BlockAllocator {
 public:
  constexpr BlockAllocator() = default;
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  // Makes blocks for view indices 1 … slab_count of a format
  // (abi::BlocksOfView). False if memory is short, if ids would exceed 32 bits,
  // or if a page exceeds a slab's share of the plane.
  bool Create(uint32_t slab_count, uint64_t plane_bytes, uint64_t page_bytes);

  // Starts handing out a leased slab's blocks. False for an index that is out
  // of range or not kUnleased.
  bool Link(uint32_t view_index);

  // Stops handing out the slab's blocks. False if the slab is not kLinked.
  bool Leave(uint32_t view_index);

  // Fills `ids` with `count` blocks. If fewer are free, changes nothing and
  // returns false.
  bool Allocate(uint32_t count, uint32_t* ids);

  // Frees blocks and returns how many. If that is less than `count`,
  // ids[returned] was not allocated, and nothing from there on was freed.
  uint32_t Free(uint32_t count, const uint32_t* ids);

  // The step fence: steps are numbered from 1 and end in the order in which
  // they begin. A step ends when the device has executed it.
  uint64_t BeginStep() { return ++steps_begun_; }
  void EndStep(uint64_t step);

  // Moves up to `capacity` drained slabs to kUnleased and writes their view
  // indices: their leases may be returned. Returns how many it moved.
  uint32_t TakeDrained(uint32_t capacity, uint32_t* view_indices);

  uint32_t free_blocks() const { return free_blocks_; }
  // Number of allocated blocks in leaving slabs.
  uint32_t leaving_blocks() const { return leaving_blocks_; }
  // Number of leaving slabs without an allocated block; only a step in flight
  // can keep such a slab from being drained.
  uint32_t emptied_slabs() const { return emptied_slabs_; }
  // Number of allocated blocks in a slab. A leaving slab waits for its
  // allocated blocks.
  uint32_t UsedBlocks(uint32_t view_index);

 private:
  enum class State : uint8_t { kUnleased, kLinked, kLeaving };

  struct Slab {
    uint32_t first;   // block id
    uint32_t blocks;  // how many are usable
    uint32_t free;    // as `bits` says, without those in recent_
    uint32_t hint;    // no word of `bits` before it has a free block
    uint32_t next;    // in the list of its bucket or of leaving slabs
    uint32_t previous;
    uint64_t barrier;  // the step that a leaving slab waits for
    uint64_t* bits;    // one per block; 1 if it is free
    State state;
  };

  // Linked slabs other than the current one are in lists by the bit width of
  // their free count.
  static constexpr uint32_t kBuckets = 33;
  static constexpr uint32_t kLeavingList = kBuckets;
  static constexpr uint32_t kNone = 0;  // index 0 is the engine's scratch

  // Heuristic: 1 KiB of ids. Sorting a block into its slab costs five times as
  // much as pushing it here, so few blocks should require sorting
  // (bench/micro/blocks_bench).
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

  Slab* slabs_ = nullptr;     // by view index; all the memory begins with them
  uint64_t* used_ = nullptr;  // one bit per block id: it is handed out
  uint64_t id_count_ = 0;
  size_t memory_bytes_ = 0;
  uint32_t slab_count_ = 0;
  uint32_t current_ = kNone;
  uint32_t recent_count_ = 0;
  uint32_t free_blocks_ = 0;
  uint32_t leaving_blocks_ = 0;
  uint32_t emptied_slabs_ = 0;
  double views_per_block_ = 0;
  uint64_t steps_begun_ = 0;
  uint64_t steps_ended_ = 0;
  uint64_t nonempty_ = 0;  // bit b: bucket b has a slab
  uint32_t heads_[kBuckets + 1] = {};
  uint32_t recent_[kRecent] = {};  // freed, of linked slabs; top at the end
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_BLOCK_ALLOCATOR_H_
