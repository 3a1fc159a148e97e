#include "daemon/evict/eviction_policy.h"

#include <algorithm>
#include <tuple>

namespace fineserve::evict {
namespace {

using sched::Micros;

// Prism, section 6.2.
constexpr Micros kPrismIdle = 45'000'000;
// Part of an activation's time that it costs even if no SLO is missed for it:
// the link, and the others' steps beside it. Heuristic.
constexpr double kWear = 0.05;

bool MayLeave(EvictionPolicy policy, const IdleEngine& e) {
  return policy != EvictionPolicy::kPrism || e.idle >= kPrismIdle;
}

double Harm(const IdleEngine& e) {
  const Micros slack = e.slo_ttft == 0 ? e.activation : e.slo_ttft;
  const Micros late = std::max<Micros>(0, e.activation - slack);
  const double cost =
      static_cast<double>(late) + kWear * static_cast<double>(e.activation);
  return e.chance * cost / static_cast<double>(std::max<uint64_t>(1, e.bytes));
}

// Smaller ones leave first.
std::tuple<double, Micros> RankOf(EvictionPolicy policy, const IdleEngine& e) {
  switch (policy) {
    case EvictionPolicy::kSlack:
      return {Harm(e), -e.idle};
    case EvictionPolicy::kPrism:
      return {-static_cast<double>(e.slo_ttft), -e.idle};
    case EvictionPolicy::kLru:
      break;
  }
  return {0, -e.idle};
}

}  // namespace

absl::optional<EvictionPolicy> EvictionPolicyNamed(absl::string_view name) {
  if (name == "slack") return EvictionPolicy::kSlack;
  if (name == "lru") return EvictionPolicy::kLru;
  if (name == "prism") return EvictionPolicy::kPrism;
  return absl::nullopt;
}

absl::optional<size_t> WhoLeaves(EvictionPolicy policy, RoomFor reason,
                                 const std::vector<IdleEngine>& idle) {
  absl::optional<size_t> best;
  std::tuple<bool, std::tuple<double, Micros>> least;
  for (size_t i = 0; i < idle.size(); ++i) {
    const IdleEngine& e = idle[i];
    if (!MayLeave(policy, e)) continue;
    const bool has_just_come =
        policy == EvictionPolicy::kSlack && e.here < kStays * e.activation;
    if (has_just_come && reason == RoomFor::kKv) continue;
    const std::tuple rank = {has_just_come, RankOf(policy, e)};
    if (best && least <= rank) continue;
    best = i;
    least = rank;
  }
  return best;
}

}  // namespace fineserve::evict
