#ifndef DAEMON_POOL_SHARE_POLICY_H_
#define DAEMON_POOL_SHARE_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/pool/slab_ids.h"

namespace fineserve::slab {

// Computes how many slabs of a shared pool each engine should hold (design note
// 0000, Memory). Pure functions.

// One engine's claim, in slabs.
struct Claim {
  uint32_t floor = 0;   // guaranteed at all times
  uint32_t cap = 0;     // at most; ≥ floor
  uint32_t wanted = 0;  // that it could use now
  uint32_t held = 0;    // leased, including slabs asked back
};

// Returns a fair target for each claim: its floor, plus an equal part of what
// all floors leave (the contested remainder). A claim that wants or may have
// less leaves the rest to the others, again in equal parts (max-min fairness).
// Slabs that cannot be divided equally go to the first claims. If not even the
// floors fit, they are reduced in the same way. The sum is at most `slabs`.
std::vector<uint32_t> FairTargets(uint32_t slabs,
                                  const std::vector<Claim>& claims);

// Returns which of the claims below their targets gets the next slab: the one
// that holds the least above its floor, so that floors come first. Skips claims
// that are `blocked`. Returns claims.size() if there is none.
size_t NextToGrant(const std::vector<Claim>& claims,
                   const std::vector<uint32_t>& targets,
                   const std::vector<bool>& blocked);

// A need for `count` slabs; any slabs below `below` will do. An engine that
// spans GPUs takes only slabs that it wishes for (by slab; empty for others).
struct Need {
  SlabId below;
  uint32_t count;
  std::vector<bool> wished = {};
  uint32_t open = 0;  // slabs of it that were not asked back

  bool Takes(SlabId slab) const {
    return slab < below && (wished.empty() || wished[Number(slab)]);
  }
};

// A slab that could be asked back from a claim.
struct Candidate {
  SlabId slab;
  uint32_t used_blocks;
  size_t claim;
};

// The slabs that a claim can give.
struct Giver {
  uint32_t spare;     // slabs above what it should have
  uint32_t open = 0;  // held slabs that were not asked back
  uint32_t floor = 0;
};

// Chooses the slabs to ask back, for needs that `coming` slabs (being zeroed or
// returned) do not cover. Takes at most givers[i].spare slabs of claim i, those
// with the fewest blocks in use first, because they drain soonest and their
// engine loses the least cached data. For an engine that spans GPUs, also takes
// slabs of a claim that can spare none, but has two more than that engine and
// more than its floor, since no other slab may be free on all the engine's
// GPUs.
std::vector<SlabId> ChooseAskBacks(std::vector<Need> needs,
                                   std::vector<SlabId> coming,
                                   std::vector<Candidate> candidates,
                                   std::vector<Giver> givers);

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_SHARE_POLICY_H_
