#include "daemon/slab/share_policy.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace fineserve::slab {
namespace {

// Max-min fair parts of `total`: fills all demands up to the same level, at
// which `total` is used up.
std::vector<uint32_t> Fill(uint32_t total,
                           const std::vector<uint32_t>& demands) {
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return demands[a] < demands[b]; });
  std::vector<uint32_t> parts(demands.size(), 0);
  size_t left = order.size();
  // Smallest demand first: a demand below the level raises it.
  for (; left > 0; --left) {
    const size_t i = order[order.size() - left];
    if (demands[i] > total / left) break;
    parts[i] = demands[i];
    total -= demands[i];
  }
  if (left == 0) return parts;
  const auto level = static_cast<uint32_t>(total / left);
  auto odd = static_cast<uint32_t>(total % left);
  std::sort(order.end() - static_cast<std::ptrdiff_t>(left), order.end());
  for (size_t k = order.size() - left; k < order.size(); ++k) {
    const size_t i = order[k];
    // All these demands exceed the level, so each can take one more.
    parts[i] = level + (odd > 0 ? 1 : 0);
    if (odd > 0) --odd;
  }
  return parts;
}

}  // namespace

std::vector<uint32_t> FairTargets(uint32_t slabs,
                                  const std::vector<Claim>& claims) {
  std::vector<uint32_t> floors;
  std::vector<uint32_t> demands;
  for (const Claim& c : claims) {
    floors.push_back(c.floor);
    const uint32_t most = std::min(c.wanted, c.cap);
    demands.push_back(most > c.floor ? most - c.floor : 0);
  }
  std::vector<uint32_t> targets = Fill(slabs, floors);
  const uint32_t contested =
      slabs - std::accumulate(targets.begin(), targets.end(), 0u);
  const std::vector<uint32_t> parts = Fill(contested, demands);
  for (size_t i = 0; i < targets.size(); ++i) targets[i] += parts[i];
  return targets;
}

size_t NextToGrant(const std::vector<Claim>& claims,
                   const std::vector<uint32_t>& targets,
                   const std::vector<bool>& blocked) {
  const auto above_floor = [&](size_t i) {
    return int64_t{claims[i].held} - claims[i].floor;
  };
  size_t next = claims.size();
  for (size_t i = 0; i < claims.size(); ++i) {
    if (blocked[i] || claims[i].held >= targets[i]) continue;
    if (next == claims.size() || above_floor(i) < above_floor(next)) next = i;
  }
  return next;
}

std::vector<SlabId> ChooseAskBacks(std::vector<Need> needs,
                                   std::vector<SlabId> coming,
                                   std::vector<Candidate> candidates,
                                   std::vector<uint32_t> spare) {
  // The need that the fewest slabs can meet is served first.
  std::sort(needs.begin(), needs.end(),
            [](const Need& a, const Need& b) { return a.below < b.below; });
  std::sort(coming.begin(), coming.end());
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) {
              return std::pair(a.used_blocks, a.slab) <
                     std::pair(b.used_blocks, b.slab);
            });
  size_t next_coming = 0;
  std::vector<SlabId> chosen;
  for (Need& need : needs) {
    for (; need.count > 0 && next_coming < coming.size() &&
           coming[next_coming] < need.below;
         ++next_coming) {
      --need.count;
    }
    for (Candidate& c : candidates) {
      if (need.count == 0) break;
      if (c.slab >= need.below || spare[c.claim] == 0) continue;
      chosen.push_back(c.slab);
      --spare[c.claim];
      --need.count;
      c.slab = SlabId{UINT32_MAX};  // taken
    }
  }
  return chosen;
}

}  // namespace fineserve::slab
