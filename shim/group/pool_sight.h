#ifndef SHIM_GROUP_POOL_SIGHT_H_
#define SHIM_GROUP_POOL_SIGHT_H_

#include <cstdint>

#include "daemon/abi/slab_table.h"

namespace fineserve::shim {

// A slab table's entries on a pool's engines, as far as another engine needs
// them to choose slabs: each engine's offer, holdings and target. The table is
// the daemon's memory and may change at any instruction: records are copied,
// and one that is torn counts for nothing.
//
// Trivially destroyed. Confined to one thread at a time.
class PoolSight {
 public:
  // `table` is one that ViewLeases has opened.
  void Look(const void* table);

  uint32_t OfferOf(uint32_t slot) const { return seen_[slot].offer; }
  // True if the daemon asks `engine` for a slab that the engine in `slot`
  // wishes for (slab::ChooseAskBacks): it holds more than its target, or two
  // more than that engine and more than its floor.
  bool CanSpare(uint32_t engine, uint32_t slot) const;

 private:
  struct Seen {
    uint32_t engine = 0;  // 0: none with an active view
    uint32_t offer = 0;
    uint32_t target = 0;
    uint32_t open = 0;  // leased and not asked back
    uint32_t floor = 0;
  };
  Seen seen_[abi::kEngineCapacity];  // by slot
};

}  // namespace fineserve::shim

#endif  // SHIM_GROUP_POOL_SIGHT_H_
