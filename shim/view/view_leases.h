#ifndef SHIM_VIEW_VIEW_LEASES_H_
#define SHIM_VIEW_VIEW_LEASES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/abi/slab_table.h"

namespace fineserve::shim {

// Which slabs of the pool this engine's view holds, as the slab table says and
// as far as the engine has been told: each lease and each ask-back comes out of
// here once.
//
//   kNone ─(table)─► kArrived ─Report─► kHeld ─(table)─► kAsked ─Report─►
//   kLeaving
//     ▲                 ▲                 └──────┬─────────┴─────────────────┘
//     │                 └──Relink── kDone ◄──ReturnSlab
//     └──(table)── kSent ◄─MarkSent──┘
//
// A slab that was leased and asked back before the engine heard of it goes to
// kDone at once. One that the table says is somebody else's without our having
// given it back (a daemon's error) is asked back: its blocks are used no more.
//
// The table is the daemon's memory: every number in it is compared with bounds
// before use, and nothing but our own slabs' words is believed. The daemon may
// die at any instruction; then the table stays as it is, and so do the leases.
//
// Confined to one thread at a time but for changes() and the futex. Trivially
// destroyed: Close gives the memory back.
class ViewLeases {
 public:
  enum class Hold : uint8_t {
    kNone,
    kArrived,  // leased, the engine does not know
    kHeld,
    kAsked,    // asked back, the engine does not know
    kLeaving,  // it knows
    kDone,     // the engine is done with it, the daemon does not know
    kSent,     // told; the table does not say so yet
  };
  static constexpr int kHoldCount = 7;

  constexpr ViewLeases() = default;

  // For view indices 1 … views (slab v - 1) of the engine in `slot`. False if
  // the table contradicts slab_table.h or memory is short.
  bool Open(const void* table, size_t table_bytes, uint32_t slot,
            uint32_t engine_id, uint32_t views);
  void Close();

  // The word that the daemon raises; the futex to sleep on. Never null once
  // opened: a table stays mapped for ever.
  const std::atomic<uint32_t>* futex() const { return changes_; }
  // Acquire: the slabs' words are at least as new. Pairs with the daemon's
  // release after it wrote them.
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
  // Leases that the daemon knows of and has not got back from us.
  uint32_t leased() const;

  // The engine has been told: kArrived to kHeld, kAsked to kLeaving.
  void Report(uint32_t v);
  // The engine is done with the slab. False if it does not have it.
  bool ReturnSlab(uint32_t v);
  // The daemon has gone before it was told: still ours.
  void Relink(uint32_t v) { Move(v, Hold::kArrived); }
  void MarkSent(uint32_t v) { Move(v, Hold::kSent); }

  // What the table says now. Which memory a slab is, 0: none. Another number
  // means other granules.
  uint64_t Memory(uint32_t v) const;
  // Whether a slab is free now and has been since then (CLOCK_MONOTONIC).
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
