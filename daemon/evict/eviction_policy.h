#ifndef DAEMON_EVICT_EVICTION_POLICY_H_
#define DAEMON_EVICT_EVICTION_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/sched/predict/ids.h"

namespace fineserve::evict {

enum class EvictionPolicy {
  // The least expected harm for a byte: the chance that a request comes soon,
  // times what its TTFT SLO does not leave for the activation.
  kSlack,
  // Longest idle first, as llama-swap.
  kLru,
  // Prism: idle for 45 s at least, the largest TTFT SLO first.
  kPrism,
};
absl::optional<EvictionPolicy> EvictionPolicyNamed(absl::string_view name);

// The reason for which memory is needed.
enum class RoomFor {
  kRequests,  // of a model that is not on the GPU, or an engine that starts
  kKv,        // of models that serve
};

// An engine on the GPU that has no request and could leave now.
struct IdleEngine {
  uint64_t bytes = 0;            // that leave with it
  sched::Micros idle = 0;        // since its last request
  sched::Micros here = 0;        // since it came to the GPU
  sched::Micros activation = 0;  // that its way back takes
  sched::Micros slo_ttft = 0;    // 0: none
  // That a request comes within kHorizon.
  double chance = 0;
};

// Time for which the memory of an engine that leaves is of use to others, at
// least. Heuristic.
inline constexpr sched::Micros kHorizon = 30'000'000;

// An engine that came to the GPU stays for so many times what its way took,
// unless requests of another one wait and no other is idle: moves then take at
// most a tenth of the time. Heuristic.
inline constexpr int kStays = 10;

// The place in `idle` of the engine that is to leave first; nullopt if none is
// to. Pure.
absl::optional<size_t> WhoLeaves(EvictionPolicy policy, RoomFor reason,
                                 const std::vector<IdleEngine>& idle);

}  // namespace fineserve::evict

#endif  // DAEMON_EVICT_EVICTION_POLICY_H_
