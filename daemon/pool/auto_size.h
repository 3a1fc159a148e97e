#ifndef DAEMON_POOL_AUTO_SIZE_H_
#define DAEMON_POOL_AUTO_SIZE_H_

#include <cstdint>
#include <map>

namespace fineserve::slab {

// The facts about a pool and its GPU by which the pool's size is chosen. Counts
// are in slabs.
struct SizeSight {
  uint64_t free_bytes = 0;  // of the GPU, as the driver has just said
  uint32_t present = 0;
  uint32_t wanted = 0;       // what the pool is being resized to
  uint32_t least = 0;        // floors, whole leases, slabs of dead engines
  uint32_t most = 0;         // that its table has room for
  uint32_t idle = 0;         // not leased
  bool tight = false;        // engines want more, or next to nothing is idle
  bool start_waits = false;  // a floor or a lease of whole slabs waits
  bool starting = false;     // an engine has joined and holds nothing yet
  // Memory reserved for an engine for which others leave the GPU; the pool does
  // not take it.
  uint64_t reserved_bytes = 0;
  uint32_t lacking = 0;  // slabs that engines want and the pool does not have
};

// Chooses the size of a pool of size "auto" while engines serve (design note
// 0038). It takes the GPU's free memory when engines want it, always leaves a
// headroom, and gives memory back when an engine asks for room, or when
// something else has used up half of the headroom. A pure machine: it reads no
// clock and makes no call.
//
// Rest: the size stays as it is while no engine wishes for room or more slabs,
// and the GPU's free memory does not change. Memory that the pool gives back to
// an engine that starts is not taken again for kCalmNs. If given-back memory
// does not become free, because a process does not unmap it, the pool stops at
// twice what was wished.
class AutoSize {
 public:
  // How long an engine that has asked for room counts as waiting for it, unless
  // it asks again: several times the shim's pause between two tries.
  static constexpr uint64_t kAskNs = 500'000'000;
  // How long the memory of a withdrawn slab may take to become free, since
  // every process that maps it has to unmap it. Heuristic: a few steps.
  static constexpr uint64_t kReturnNs = 1'000'000'000;
  // After the pool has given memory back, it does not grow for this long, so
  // that a starting engine can allocate its weights, graphs and buffers.
  // Heuristic.
  static constexpr uint64_t kCalmNs = 30'000'000'000;

  AutoSize(uint64_t slab_bytes, uint64_t headroom_bytes)
      : slab_bytes_(slab_bytes), headroom_bytes_(headroom_bytes) {}

  // Records that the driver refused `bytes` to process `asker`, which will try
  // again. `starts`: the process is starting, and will need more memory after
  // these bytes.
  void Ask(uint32_t asker, uint64_t bytes, bool starts, uint64_t now_ns);
  // Records that `asker` has stopped waiting, most likely because it has got
  // its bytes.
  void Served(uint32_t asker);
  // Records that a living engine has freed memory. The pool may take that
  // memory at once, since the pool did not give it up for a starting engine.
  void CameFree() { calm_until_ns_ = 0; }
  // `asker` can never get its bytes.
  void Forget(uint32_t asker) { wishes_.erase(asker); }
  // True if an engine waits for room.
  bool asked(uint64_t now_ns) const;

  // Returns the size that the pool should have: at least `least` unless the
  // pool is already smaller, and at most `most`.
  uint32_t Choose(const SizeSight& sight, uint64_t now_ns);

  // True if memory that the pool has given up may still be on its way to the
  // processes that wait for it. `present`: number of slabs that the pool has
  // now.
  bool arriving(uint32_t present, uint64_t now_ns) const;
  // Returns how much of the GPU's memory will be free once everything that has
  // left the pool is free.
  uint64_t FreeSoon(uint64_t free_bytes, uint32_t present) const;

 private:
  struct Wish {
    uint64_t bytes = 0;
    uint64_t since_ns = 0;
    uint64_t until_ns = 0;
    bool starts = false;
  };
  // Describes the return of memory that is under way. When it began, the GPU
  // had `free_bytes` free and the pool had `present` slabs.
  struct Return {
    bool on = false;
    uint64_t free_bytes = 0;
    uint32_t present = 0;
    uint64_t last_ns = 0;      // when a slab was last seen to leave
    uint64_t taken_bytes = 0;  // by processes that wished for it, since then
  };

  void Follow(const SizeSight& sight, uint64_t now_ns);
  bool HasArrived(const SizeSight& sight) const;
  void DropOldWishes(uint64_t now_ns);
  uint64_t Wished() const;
  bool AnyOlderThan(uint64_t ns, uint64_t now_ns) const;
  uint32_t MakeRoom(const SizeSight& sight, uint64_t free_soon,
                    uint64_t now_ns);
  uint32_t Decide(const SizeSight& sight, uint64_t now_ns);
  uint32_t Smaller(const SizeSight& sight, uint64_t bytes,
                   uint32_t least) const;
  uint32_t Larger(const SizeSight& sight) const;

  const uint64_t slab_bytes_;
  const uint64_t headroom_bytes_;
  std::map<uint32_t, Wish> wishes_;  // by asker
  Return return_;
  // True if the last waiting engine has got its memory, and may have taken the
  // rest without a wish: no memory is on its way now.
  bool has_arrived_ = false;
  uint64_t last_free_ = 0;
  uint32_t last_choice_ = 0;
  uint64_t pieces_ = 1;  // slabs to give up next if memory is in pieces
  // Memory that the pool has given up since an engine began to wait; memory
  // that engines have wished for since then; memory given up since the headroom
  // became short.
  uint64_t given_bytes_ = 0;
  uint64_t due_bytes_ = 0;
  uint64_t given_to_headroom_bytes_ = 0;
  bool gives_to_headroom_ =
      false;  // the pool shrinks for the headroom, not for an engine
  uint32_t last_present_ = 0;
  uint64_t calm_until_ns_ = 0;
};

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_AUTO_SIZE_H_
