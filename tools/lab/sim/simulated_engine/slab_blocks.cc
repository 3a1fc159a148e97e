#include "tools/lab/sim/simulated_engine/slab_blocks.h"

#include <algorithm>

namespace fineserve::sim {

void SlabBlocks::Link(uint32_t slab, uint32_t blocks) {
  slabs_[slab] = {blocks};
  free_ += blocks;
  linked_ += blocks;
  Shelve(slab);
}

void SlabBlocks::Leave(uint32_t slab) {
  Slab& s = slabs_[slab];
  if (current_ == slab) {
    current_ = kNone;
  } else {
    Unshelve(slab);
  }
  free_ -= FreeIn(slab);
  linked_ -= s.blocks;
  leaving_ += s.used;
  s.leaves = true;
  if (s.used > 0) return;
  drained_.push_back(slab);
  s = {};
}

void SlabBlocks::Shelve(uint32_t slab) {
  uint32_t& first = shelves_[ShelfOf(slab)];
  slabs_[slab].previous = kNone;
  slabs_[slab].next = first;
  if (first != kNone) slabs_[first].previous = slab;
  first = slab;
}

void SlabBlocks::Unshelve(uint32_t slab) {
  const Slab& s = slabs_[slab];
  if (s.next != kNone) slabs_[s.next].previous = s.previous;
  (s.previous == kNone ? shelves_[ShelfOf(slab)] : slabs_[s.previous].next) =
      s.next;
}

// Requires that a slab other than the current one has a free block.
void SlabBlocks::ChooseCurrent() {
  if (current_ != kNone) Shelve(current_);
  uint32_t shelf = 1;
  while (shelves_[shelf] == kNone) ++shelf;
  current_ = shelves_[shelf];
  Unshelve(current_);
}

void SlabBlocks::BeginStep() {
  const uint32_t last = std::exchange(current_, kNone);
  if (last != kNone) Shelve(last);
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
  for (auto it = runs->rbegin(); it != runs->rend(); ++it) {
    const Run& run = *it;
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
    const uint32_t shelf = ShelfOf(run.slab);
    const bool moves = run.slab != current_ &&
                       std::bit_width(FreeIn(run.slab) + run.blocks) != shelf;
    if (moves) Unshelve(run.slab);
    s.used -= run.blocks;
    if (moves) Shelve(run.slab);
  }
  runs->clear();
}

}  // namespace fineserve::sim
