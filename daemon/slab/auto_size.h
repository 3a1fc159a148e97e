#ifndef DAEMON_SLAB_AUTO_SIZE_H_
#define DAEMON_SLAB_AUTO_SIZE_H_

#include <cstdint>
#include <map>

namespace fineserve::slab {

// What is known of a pool and its GPU when a size is to be chosen. Counts are
// in slabs.
struct SizeSight {
  uint64_t free_bytes = 0;  // of the GPU, as the driver has just said
  uint32_t present = 0;
  uint32_t wanted = 0;       // what the pool is being resized to
  uint32_t least = 0;        // floors, whole leases, slabs of dead engines
  uint32_t most = 0;         // that its table has room for
  uint32_t idle = 0;         // leased to nobody
  bool tight = false;        // engines want more, or next to nothing is idle
  bool floor_waits = false;  // of a view that is being registered
  bool starting = false;     // an engine has joined and holds nothing yet
};

// How large a pool of size "auto" should be while engines serve (design note
// 0038). It takes what is free on the GPU when engines want it, always leaves a
// headroom, and gives memory back when an engine asks for room, or when
// something else has used up half of the headroom. A pure machine: it reads no
// clock and makes no call.
//
// Rest: with no wish for room, a GPU whose free memory stays as it is and
// engines that want no more, the size stays as it is. What it gives back it
// does not take again for kCalmNs. If what it gives does not become free,
// because a process does not unmap it, it ends at twice what was wished.
class AutoSize {
 public:
  // How long an engine that asks for room is known to wait for it, unless it
  // asks again: several times what the shim pauses between two tries.
  static constexpr uint64_t kAskNs = 500'000'000;
  // How long the memory of a slab that was withdrawn may take to become free,
  // since every process that maps it has to unmap it. Heuristic: some steps.
  static constexpr uint64_t kReturnNs = 1'000'000'000;
  // Heuristic: how long the pool does not grow after it gave memory back, so
  // that an engine that starts gets its weights, graphs and buffers in peace.
  static constexpr uint64_t kCalmNs = 30'000'000'000;

  AutoSize(uint64_t slab_bytes, uint64_t headroom_bytes)
      : slab_bytes_(slab_bytes), headroom_bytes_(headroom_bytes) {}

  // The driver refused `bytes` to process `asker`, which will try again.
  void Ask(uint32_t asker, uint64_t bytes, uint64_t now_ns);
  // It waits no more, and most likely has got them.
  void Served(uint32_t asker);
  // It can never get them.
  void Forget(uint32_t asker) { wishes_.erase(asker); }
  // Whether an engine waits for room.
  bool asked(uint64_t now_ns) const;

  // The size that the pool should have: no less than `least` unless it is
  // smaller already, no more than `most`.
  uint32_t Choose(const SizeSight& sight, uint64_t now_ns);

  // Whether memory that the pool, which now has `present` slabs, has given up
  // may still be on its way to those who wait for it.
  bool arriving(uint32_t present, uint64_t now_ns) const;
  // What is free of the GPU when all that has left the pool has arrived.
  uint64_t FreeSoon(uint64_t free_bytes, uint32_t present) const;

 private:
  struct Wish {
    uint64_t bytes = 0;
    uint64_t since_ns = 0;
    uint64_t until_ns = 0;
  };
  // The pool is giving memory back, since the GPU had `free_bytes` free and the
  // pool `present` slabs.
  struct Return {
    bool on = false;
    uint64_t free_bytes = 0;
    uint32_t present = 0;
    uint64_t last_ns = 0;      // when a slab was last seen to leave
    uint64_t taken_bytes = 0;  // by those who wished for it, meanwhile
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
  uint64_t last_free_ = 0;
  uint32_t last_choice_ = 0;
  uint64_t pieces_ = 1;  // slabs to give up next if memory lies in pieces
  // What the pool has given up since somebody began to wait, and what they have
  // wished for since; what it gave up since the headroom was short.
  uint64_t given_bytes_ = 0;
  uint64_t due_bytes_ = 0;
  uint64_t given_to_headroom_bytes_ = 0;
  uint32_t last_present_ = 0;
  uint64_t calm_until_ns_ = 0;
};

}  // namespace fineserve::slab

#endif  // DAEMON_SLAB_AUTO_SIZE_H_
