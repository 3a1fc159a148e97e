#include "daemon/scheduling/evict/eviction_policy.h"

#include <algorithm>
#include <tuple>

namespace fineserve::evict {
namespace {

using sched::Micros;

// Prism, section 6.2.
constexpr Micros kPrismIdle = 45'000'000;
// Harm of an activation by which no request misses its SLO, as a fraction of
// the harm of one by which a request does: it takes the link and slows the
// other engines' steps. Heuristic.
constexpr double kWear = 0.05;

// True if the engine has just come. Only our own policy considers this.
bool HasJustCome(EvictionPolicy policy, const IdleEngine& e) {
  return policy == EvictionPolicy::kSlack && e.here < kStays * e.activation;
}

// Engines with a smaller rank leave first.
std::tuple<double, Micros> RankOf(EvictionPolicy policy, const IdleEngine& e) {
  switch (policy) {
    case EvictionPolicy::kSlack:
      return {Harm(e) / static_cast<double>(std::max<uint64_t>(1, e.bytes)),
              -e.idle};
    case EvictionPolicy::kPrism:
      return {-static_cast<double>(e.slo_ttft), -e.idle};
    case EvictionPolicy::kLru:
      break;
  }
  return {0, -e.idle};
}

}  // namespace

uint64_t MakeRoom(uint64_t bytes, const RoomSources& sources) {
  if (sources.idle_bytes < bytes) {
    const Room room = sources.evict(/*may_rest=*/false);
    if (room == Room::kComes) return bytes;
    if (room == Room::kNotForNext) return 0;
  }
  if (const uint64_t of_pool = sources.ask_pool()) return of_pool;
  return sources.evict(/*may_rest=*/true) == Room::kComes ? bytes : 0;
}

double Harm(const IdleEngine& e) {
  const bool misses = e.slo_ttft != 0 && e.activation > e.slo_ttft;
  return e.chance * (misses ? 1 : kWear);
}

absl::optional<EvictionPolicy> EvictionPolicyNamed(absl::string_view name) {
  if (name == "slack") return EvictionPolicy::kSlack;
  if (name == "lru") return EvictionPolicy::kLru;
  if (name == "prism") return EvictionPolicy::kPrism;
  return absl::nullopt;
}

bool MayLeave(EvictionPolicy policy, RoomFor reason, const IdleEngine& e,
              const IdleEngine& asker) {
  if (policy == EvictionPolicy::kPrism) {
    // Prism starts its engines before there are requests.
    return reason == RoomFor::kStart || e.idle >= kPrismIdle || e.rests;
  }
  if (policy != EvictionPolicy::kSlack) return true;
  if (reason == RoomFor::kKv) return !HasJustCome(policy, e);
  return reason != RoomFor::kNext || Harm(e) < Harm(asker);
}

absl::optional<size_t> WhoLeaves(EvictionPolicy policy, RoomFor reason,
                                 const std::vector<IdleEngine>& idle,
                                 const IdleEngine& asker) {
  absl::optional<size_t> best;
  std::tuple<bool, bool, std::tuple<double, Micros>> least;
  for (size_t i = 0; i < idle.size(); ++i) {
    const IdleEngine& e = idle[i];
    if (!MayLeave(policy, reason, e, asker)) continue;
    const std::tuple rank = {e.has_declined, HasJustCome(policy, e),
                             RankOf(policy, e)};
    if (best && least <= rank) continue;
    best = i;
    least = rank;
  }
  return best;
}

}  // namespace fineserve::evict
