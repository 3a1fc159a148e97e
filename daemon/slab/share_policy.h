#ifndef DAEMON_SLAB_SHARE_POLICY_H_
#define DAEMON_SLAB_SHARE_POLICY_H_

#include <cstdint>
#include <vector>

namespace fineserve::slab {

// Who should hold how many slabs of a pool that several engines share
// (design.md §3.7). Pure functions: counts in, counts out.

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

// What to do now.
struct Rebalance {
  std::vector<uint32_t> grants;  // per claim, of the slabs that are free
  // Slabs to ask back, and how many each claim can spare of them.
  uint32_t ask_back = 0;
  std::vector<uint32_t> spare;
};

// `reserved`: slabs, of those that are free or become so, that others wait for
// and come first. Grants free slabs to whoever is below its target, whoever has
// least above its floor first. Asks back only what is missing then: a claim
// above its target keeps what nobody else wants. `coming`: slabs that become
// free without asking, being zeroed or returned.
Rebalance PlanRebalance(uint32_t free, uint32_t coming, uint32_t reserved,
                        const std::vector<Claim>& claims,
                        const std::vector<uint32_t>& targets);

}  // namespace fineserve::slab

#endif  // DAEMON_SLAB_SHARE_POLICY_H_
