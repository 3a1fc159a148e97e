#ifndef SHIM_RANKS_GROUP_LEASES_H_
#define SHIM_RANKS_GROUP_LEASES_H_

#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/slab_table.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/view/view_leases.h"

namespace fineserve::shim {

// The part of a slab table's engine entries by which another engine chooses
// slabs: each engine's offer, holdings and target; and what its daemon says of
// the blocks that this engine could have. The table is the daemon's
// memory and may change at any instruction, so records are copied, and a torn
// one is ignored.
//
// Trivially destroyed. Confined to one thread at a time.
class PoolSight {
 public:
  struct Sure {
    uint64_t blocks = UINT64_MAX;
    uint64_t first_blocks = UINT64_MAX;  // while the engine runs nothing
  };

  // `table` must have been opened by ViewLeases.
  void Look(const void* table);

  uint32_t OfferOf(uint32_t slot) const { return seen_[slot].offer; }
  // Returns the most slabs that the engine in `slot` can ever have in this
  // pool.
  uint32_t MostOf(uint32_t slot) const { return seen_[slot].most; }
  // Returns the blocks that the GPU's admission could count on for the engine
  // in `slot`; UINT64_MAX if its daemon does not publish them.
  Sure SureOf(uint32_t slot) const {
    // 0, which means unknown, becomes UINT64_MAX.
    return {seen_[slot].sure_word - 1, seen_[slot].first_word - 1};
  }
  // True if the daemon would ask `engine` for a slab that the engine in `slot`
  // wishes for (slab::ChooseAskBacks): `engine` holds more than its target, or
  // at least two more than the other engine and more than its floor.
  bool CanSpare(uint32_t engine, uint32_t slot) const;

 private:
  struct Seen {
    uint32_t engine = 0;  // 0: none with an active view
    uint32_t offer = 0;
    uint32_t target = 0;
    uint32_t open = 0;  // leased and not asked back
    uint32_t floor = 0;
    uint32_t most = 0;
    // As in EngineEntry.
    uint64_t sure_word = 0;
    uint64_t first_word = 0;
  };
  Seen seen_[abi::kEngineCapacity];  // by slot
};

// The leases of an engine that spans GPUs. Its block ids are the same on all of
// them, so it can use a slab only where every pool has leased it that slab; a
// lease on only some of them is given back. A pure machine: Look takes in the
// slab tables, Want and Return the engine's needs; it decides which slabs to
// wish for and which to return.
//
//   kNone ─(chosen)─► kWished ─(all ranks lease it)─► kReady ─Report─► kHeld
//     ▲                  │(late)        (asked back)│     (asked back)│
//     │                  ▼                          ▼                 ▼
//     └(no rank has it)─ kGiven ◄───────────────────┘               kAsked
//                          ▲                                          │
//                          └──────Return───── kLeaving ◄────Report────┘
//
// Pools shrink and grow while the engine serves. It chooses only slabs whose
// present memory is mapped by all ranks, as they show.
//
// No deadlock: an engine waits at most kPatienceMs for a slab that it holds on
// some ranks while it is not on its way on the others. After it gives up it
// looks elsewhere in the pool, so that two engines which want the same slabs
// part. It wishes only for slabs that on every rank are free, on their way, or
// can be asked back for it (PoolSight).
//
// Confined to one thread at a time. Constant-initialised, trivially destroyed:
// Close frees the memory.
class GroupLeases {
 public:
  static constexpr uint32_t kMaxRanks = 16;
  // Heuristics: limits on the wait for a slab that is wished for, and for one
  // that is on its way. Another engine must first drain a slab that is on its
  // way (while it has blocks in each slab that could be had).
  static constexpr uint64_t kPatienceMs = 500;
  static constexpr uint64_t kDrainMs = 10'000;

  enum class Hold : uint8_t {
    kNone,
    kWished,   // some ranks may hold it
    kReady,    // leased by all, not reported yet
    kHeld,     // leased by all and reported
    kAsked,    // a rank asks it back; not reported yet
    kLeaving,  // that was reported
    kGiven,    // being returned on all ranks
  };
  static constexpr int kHoldCount = 7;

  constexpr GroupLeases() = default;

  // The leases and the pool of one GPU, and what its rank shows of its
  // mappings. All must outlive this object.
  struct Place {
    ViewLeases* leases = nullptr;
    const PoolSight* sight = nullptr;
    const ViewScoreboardWriter* shown = nullptr;
    uint32_t engine = 0;  // its id there
    uint32_t slot = 0;    // its entry in that table
  };
  // Follows view indices 1 … views of all places, and holds at most `cap`
  // slabs. `seed` makes engines choose differently. False if memory is short.
  bool Open(const Place* places, uint32_t count, uint32_t views, uint32_t cap,
            uint32_t seed);
  void Close();

  // Brings every hold up to date. The places must have been looked at before.
  void Look();
  // Chooses what to wish for, for an engine that could use `want` slabs.
  void Plan(uint64_t now_ms);
  // Called instead of Plan while a daemon is lost: wishes for nothing, and
  // gives back the slabs that only some ranks hold.
  void Rest();
  void Want(uint32_t slabs) { want_ = slabs; }

  // The want that every rank must send: at most the smallest offer of any pool.
  uint32_t take() const { return take_; }
  // The number of slabs that the engine has, plus further ones that every pool
  // has free or would ask back for it, as seen now: `sure` counts only slabs in
  // which other engines have no blocks, `first` all.
  struct Reach {
    uint32_t sure;
    uint32_t first;
  };
  Reach CountReach() const;
  // Slabs that it has.
  uint32_t Having() const {
    return count(Hold::kReady) + count(Hold::kHeld) + count(Hold::kAsked) +
           count(Hold::kLeaving);
  }
  // The most slabs that the engine can ever have on all GPUs.
  uint32_t Most() const;
  // Returns the smallest number that admission could count on according to the
  // daemons of all places except `but`.
  PoolSight::Sure SureBeside(uint32_t but) const;
  // True if the engine could use more slabs than it is offered or has.
  bool wants_more() const { return Having() < want_; }
  bool wished(uint32_t v) const { return hold(v) == Hold::kWished; }
  // Returns true once after each change of the wishes.
  bool TakeWishesChanged();

  uint32_t views() const { return views_; }
  uint32_t count(Hold hold) const { return counts_[static_cast<int>(hold)]; }
  Hold hold(uint32_t v) const { return slabs_[v].hold; }
  // The first view index after `v` in this state; 0 if there is none.
  uint32_t Next(Hold hold, uint32_t v) const;
  // Records that a change was reported: kReady becomes kHeld, kAsked becomes
  // kLeaving.
  void Report(uint32_t v);
  // Returns a slab that the engine has finished with. False if it does not have
  // it.
  bool Return(uint32_t v);

 private:
  struct Slab {
    uint64_t since_ms;  // wished for since then, or not again before then
    Hold hold;
    uint8_t cost;  // of the last plan
  };
  static constexpr uint8_t kNever = 255;

  void Move(uint32_t v, Hold to);
  void LookAt(uint32_t v);
  void GiveBack(uint32_t v);
  void DropWish(uint32_t v, uint64_t again_ms);
  void DropLate(uint64_t now_ms);
  void DropSome(uint32_t surplus);
  void AddWishes(uint32_t missing, uint64_t now_ms);
  bool IsComing(uint32_t v) const;
  bool IsInUse(uint32_t v) const;
  bool AnyUnused(uint64_t now_ms) const;
  static bool IsMapped(const Place& place, uint32_t v);
  bool IsMappedByAll(uint32_t v) const;
  uint8_t CostOf(uint32_t v) const;
  uint8_t CostAt(const Place& place, uint32_t v) const;

  Place places_[kMaxRanks];
  uint32_t place_count_ = 0;
  Slab* slabs_ = nullptr;  // by view index
  uint32_t views_ = 0;
  uint32_t cap_ = 0;
  uint32_t want_ = 0;
  uint32_t take_ = 0;
  uint32_t random_ = 1;  // never 0
  uint32_t begin_ = 0;   // the search for slabs begins after this index
  bool wishes_changed_ = false;
  uint32_t counts_[kHoldCount] = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_RANKS_GROUP_LEASES_H_
