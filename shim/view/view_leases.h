#ifndef SHIM_VIEW_VIEW_LEASES_H_
#define SHIM_VIEW_VIEW_LEASES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/slab_table.h"

namespace fineserve::shim {

// Tracks which slabs of the pool this engine's view holds, according to the
// slab table, and how much of that has been reported to the engine. Each lease
// and each ask-back is reported once.
//
//   kNone ─(table)► kArrived ─Report► kHeld ─(table)► kAsked ─Report► kLeaving
//     ▲                ▲                └──────┬─────────┴────────────────┘
//     │                └──Relink── kDone ◄──ReturnSlab
//     └──(table)── kSent ◄─MarkSent──┘
//
// A slab that is leased and asked back before it was reported goes to kDone at
// once. If the table gives a slab to another engine although we have not
// returned it (a bug of the daemon), it counts as asked back, so that the
// engine stops using its blocks.
//
// The table is the daemon's memory: every number in it is checked against
// bounds before use, and only the words of our own slabs are trusted. The
// daemon may die at any instruction; the table then stays as it is, and so do
// the leases.
//
// Confined to one thread at a time, except for changes() and the futex.
// Trivially destroyed: Close frees the memory.
class ViewLeases {
 public:
  enum class Hold : uint8_t {
    kNone,
    kArrived,  // leased, not reported yet
    kHeld,     // leased and reported
    kAsked,    // asked back, not reported yet
    kLeaving,  // asked back, which was reported
    kDone,     // the engine is done with it; no return was sent yet
    kSent,     // the return was sent; the table does not show it yet
  };
  static constexpr int kHoldCount = 7;

  constexpr ViewLeases() = default;

  // Follows view indices 1 … views (index v denotes slab v - 1) for the engine
  // in `slot`. False if the table contradicts slab_table.h or memory is short.
  bool Open(const void* table, size_t table_bytes, uint32_t slot,
            uint32_t engine_id, uint32_t views);
  void Close();

  // Returns the word that the daemon raises, which is the futex to sleep on. It
  // stays valid once opened, because a table is never unmapped.
  const std::atomic<uint32_t>* futex() const { return changes_; }
  // Acquire: slabs' words that are read after this are at least as new. Pairs
  // with the daemon's release after it has written them.
  uint32_t changes() const { return changes_->load(std::memory_order_acquire); }
  uint32_t seen() const { return seen_; }
  bool Changed() const { return changes() != seen_; }

  // Brings every hold up to date with the table.
  void Look();

  uint32_t count(Hold hold) const { return counts_[static_cast<int>(hold)]; }
  Hold hold(uint32_t v) const { return slabs_[v].hold; }
  uint32_t lease(uint32_t v) const { return slabs_[v].lease; }
  // The first view index after `v` in this state; 0 if there is none.
  uint32_t Next(Hold hold, uint32_t v) const;
  // Number of our leases whose return has not been sent.
  uint32_t leased() const;
  // Number of our leases that were asked back or are about to be returned.
  uint32_t leaving() const {
    return count(Hold::kAsked) + count(Hold::kLeaving) + count(Hold::kDone);
  }

  // Notes that the change was reported: kArrived becomes kHeld, kAsked
  // kLeaving.
  void Report(uint32_t v);
  // Called when the engine has finished with the slab. False if the engine does
  // not have it.
  bool ReturnSlab(uint32_t v);
  // For a slab in kDone whose daemon went away before the return was sent: the
  // slab is still ours.
  void Relink(uint32_t v) { Move(v, Hold::kArrived); }
  void MarkSent(uint32_t v) { Move(v, Hold::kSent); }
  // Marks returns to be sent again if their notice may have been lost: returns
  // that the table does not show yet.
  void SendAgain();

  // Returns the slab's word in the table, whichever engine holds it.
  abi::SlabWord word(uint32_t v) const { return Word(v); }
  // Returns the number of the slab's blocks in use, if a view holds the slab
  // and the daemon publishes them.
  uint32_t BlocksInUse(uint32_t v) const;
  // The number of the slab's memory in the table; 0 if it has none. A different
  // number means different granules.
  uint64_t Memory(uint32_t v) const;
  // True if at least one slab has been free since `since_ns` (CLOCK_MONOTONIC)
  // or longer.
  bool AnyFreeSince(uint64_t since_ns) const;

 private:
  struct Slab {
    uint32_t lease;
    Hold hold;
  };

  abi::SlabWord Word(uint32_t v) const;
  void LookAt(uint32_t v, abi::SlabWord word);
  void Move(uint32_t v, Hold to);

  const abi::SlabEntry* entries_ = nullptr;
  const std::atomic<uint32_t>* changes_ = nullptr;
  Slab* slabs_ = nullptr;  // by view index
  uint32_t views_ = 0;
  uint32_t engine_id_ = 0;
  uint32_t seen_ = 0;
  uint32_t counts_[kHoldCount] = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_VIEW_LEASES_H_
