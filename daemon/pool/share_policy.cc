#include "daemon/pool/share_policy.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>
#include <utility>

namespace fineserve::slab {
namespace {

constexpr SlabId kTaken{UINT32_MAX};

// Returns max-min fair parts of `total`: fills all demands up to the same
// level, at which `total` is used up.
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
    // All remaining demands exceed the level, so each can take one more.
    parts[i] = level + (odd > 0 ? 1 : 0);
    if (odd > 0) --odd;
  }
  return parts;
}

bool Gives(const Giver& giver, const Need& need) {
  return giver.spare > 0 || (!need.wished.empty() && giver.open > giver.floor &&
                             giver.open >= need.open + 2);
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
                                   std::vector<Giver> givers) {
  // Serves first the need that the fewest slabs can meet.
  std::sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return std::tuple(a.wished.empty(), a.below) <
           std::tuple(b.wished.empty(), b.below);
  });
  std::sort(coming.begin(), coming.end());
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) {
              return std::pair(a.used_blocks, a.slab) <
                     std::pair(b.used_blocks, b.slab);
            });
  std::vector<SlabId> chosen;
  for (Need& need : needs) {
    for (SlabId& slab : coming) {
      if (need.count == 0) break;
      if (!need.Takes(slab)) continue;
      --need.count;
      slab = kTaken;
    }
    for (Candidate& c : candidates) {
      if (need.count == 0) break;
      if (!need.Takes(c.slab) || !Gives(givers[c.claim], need)) continue;
      chosen.push_back(c.slab);
      Giver& giver = givers[c.claim];
      giver.spare -= std::min(giver.spare, 1u);
      giver.open -= std::min(giver.open, 1u);
      ++need.open;
      --need.count;
      c.slab = kTaken;
    }
  }
  return chosen;
}

}  // namespace fineserve::slab
