#include "tools/sim/engine/slab_blocks.h"

#include <algorithm>

namespace fineserve::sim {

void SlabBlocks::Link(uint32_t slab, uint32_t blocks) {
  slabs_[slab] = {blocks, 0, false};
  free_ += blocks;
  linked_ += blocks;
  Shelve(slab);
}

void SlabBlocks::Leave(uint32_t slab) {
  Slab& s = slabs_[slab];
  open_.erase({FreeIn(slab), slab});
  if (current_ == slab) current_ = kNone;
  free_ -= FreeIn(slab);
  linked_ -= s.blocks;
  leaving_ += s.used;
  s.leaves = true;
  if (s.used > 0) return;
  drained_.push_back(slab);
  s = {};
}

// Makes the slab's free blocks findable.
void SlabBlocks::Shelve(uint32_t slab) {
  if (slab != current_ && FreeIn(slab) > 0) open_.emplace(FreeIn(slab), slab);
}

void SlabBlocks::ChooseCurrent() {
  current_ = open_.begin()->second;
  open_.erase(open_.begin());
}

bool SlabBlocks::Allocate(uint32_t count, Runs* to) {
  if (count > free_) {
    shortfall_ = std::max(shortfall_, count);
    return false;
  }
  free_ -= count;
  used_ += count;
  while (count > 0) {
    if (current_ == kNone || FreeIn(current_) == 0) ChooseCurrent();
    const uint32_t taken = std::min(count, FreeIn(current_));
    slabs_[current_].used += taken;
    count -= taken;
    if (!to->empty() && to->back().slab == current_) {
      to->back().blocks += taken;
    } else {
      to->push_back({current_, taken});
    }
  }
  return true;
}

void SlabBlocks::Free(Runs* runs) {
  for (const Run& run : *runs) {
    Slab& s = slabs_[run.slab];
    used_ -= run.blocks;
    if (s.leaves) {
      s.used -= run.blocks;
      leaving_ -= run.blocks;
      if (s.used > 0) continue;
      drained_.push_back(run.slab);
      s = {};
      continue;
    }
    free_ += run.blocks;
    if (run.slab != current_) open_.erase({FreeIn(run.slab), run.slab});
    s.used -= run.blocks;
    Shelve(run.slab);
  }
  runs->clear();
}

}  // namespace fineserve::sim
