#include "daemon/slab/share_policy.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace fineserve::slab {
namespace {

// Max-min fair parts of `total` under demands: the water level at which they
// use it up.
std::vector<uint32_t> Fill(uint32_t total,
                           const std::vector<uint32_t>& demands) {
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return demands[a] < demands[b]; });
  std::vector<uint32_t> parts(demands.size(), 0);
  size_t left = order.size();
  // Smallest demand first: who is satisfied below the level raises it.
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
    // All demands here exceed the level, so one more is welcome.
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

Rebalance PlanRebalance(uint32_t free, uint32_t coming, uint32_t reserved,
                        const std::vector<Claim>& claims,
                        const std::vector<uint32_t>& targets) {
  Rebalance plan;
  plan.grants.assign(claims.size(), 0);
  plan.spare.assign(claims.size(), 0);
  uint64_t missing = 0;
  for (size_t i = 0; i < claims.size(); ++i) {
    const uint32_t held = claims[i].held;
    if (held < targets[i]) missing += targets[i] - held;
    if (held > targets[i]) plan.spare[i] = held - targets[i];
  }
  const uint64_t needed = reserved + missing;
  const uint64_t expected = uint64_t{free} + coming;
  free -= std::min(free, reserved);
  // What a claim would have above its floor; negative below it.
  const auto above_floor = [&](size_t i) {
    return int64_t{claims[i].held} + plan.grants[i] - claims[i].floor;
  };
  for (; free > 0 && missing > 0; --free, --missing) {
    size_t poorest = claims.size();
    for (size_t i = 0; i < claims.size(); ++i) {
      if (claims[i].held + plan.grants[i] >= targets[i]) continue;
      if (poorest == claims.size() || above_floor(i) < above_floor(poorest)) {
        poorest = i;
      }
    }
    ++plan.grants[poorest];
  }
  const uint64_t spare =
      std::accumulate(plan.spare.begin(), plan.spare.end(), uint64_t{0});
  if (needed > expected) {
    plan.ask_back = static_cast<uint32_t>(std::min(needed - expected, spare));
  }
  return plan;
}

}  // namespace fineserve::slab
