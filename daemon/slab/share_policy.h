#ifndef DAEMON_SLAB_SHARE_POLICY_H_
#define DAEMON_SLAB_SHARE_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/slab/ids.h"

namespace fineserve::slab {

// Who should hold how many slabs of a pool that several engines share
// (design note 0000, Memory). Pure functions.

// One engine's claim, in slabs.
struct Claim {
  uint32_t floor = 0;   // its own at all times
  uint32_t cap = 0;     // never more; ≥ floor
  uint32_t wanted = 0;  // could use now
  uint32_t held = 0;    // leased and not asked back
};

// A fair target for each claim: its floor, and of what all floors leave (the
// contested remainder) an equal part, unless it wants or may have less; what
// it leaves goes to the others in equal parts again (max-min fairness). What
// does not divide goes to the first. Where not even the floors fit, they are
// shared in the same way. Sums up to at most `slabs`.
std::vector<uint32_t> FairTargets(uint32_t slabs,
                                  const std::vector<Claim>& claims);

// Who of those below their target is granted the next slab: the one that has
// least above its floor, so that floors come before everything else. Nobody
// that is `blocked`. claims.size() if there is no one.
size_t NextToGrant(const std::vector<Claim>& claims,
                   const std::vector<uint32_t>& targets,
                   const std::vector<bool>& blocked);

// Slabs that are missing: any `count` of those below `below`.
struct Need {
  SlabId below;
  uint32_t count;
};

// A slab that could be asked back of a claim.
struct Candidate {
  SlabId slab;
  uint32_t used_blocks;
  size_t claim;
};

// Which slabs to ask back: only for needs that `coming` slabs (being zeroed or
// returned) do not cover, at most spare[i] of claim i, cheapest first: the
// fewer blocks a slab has in use, the sooner it is drained and the less is lost
// of what its engine has cached.
std::vector<SlabId> ChooseAskBacks(std::vector<Need> needs,
                                   std::vector<SlabId> coming,
                                   std::vector<Candidate> candidates,
                                   std::vector<uint32_t> spare);

}  // namespace fineserve::slab

#endif  // DAEMON_SLAB_SHARE_POLICY_H_
