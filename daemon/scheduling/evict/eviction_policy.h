#ifndef DAEMON_SCHEDULING_EVICT_EVICTION_POLICY_H_
#define DAEMON_SCHEDULING_EVICT_EVICTION_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::evict {

enum class EvictionPolicy {
  // The least expected harm for a byte: the chance that a request comes soon,
  // and, far above that, whether its TTFT SLO would not hold the way back.
  kSlack,
  // Longest idle first, as llama-swap.
  kLru,
  // Prism: idle for 45 s at least, the largest TTFT SLO first.
  kPrism,
};
absl::optional<EvictionPolicy> EvictionPolicyNamed(absl::string_view name);

// The reason for which memory is needed.
enum class RoomFor {
  kStart,     // an engine starts
  kRequests,  // that wait for their model
  // The next request of a model: one was refused, since its SLO would not have
  // held its way back.
  kNext,
  kKv,  // that models on the GPU lack
};

// The answer of others to an engine that lacks memory.
enum class Room {
  kComes,  // one leaves, or rests so that it can
  kNone,
  // None, and no slab of an engine that has requests either: it is for the next
  // request of a model.
  kNotForNext,
};

// Memory that may come for an engine that lacks it.
struct RoomSources {
  uint64_t idle_bytes = 0;  // free ones, and slabs that no engine holds
  // An idle engine leaves; with `may_rest`, one gives way that is never idle.
  absl::FunctionRef<Room(bool may_rest)> evict;
  // Asks the pool for slabs, of engines with requests, too. Returns bytes; 0:
  // it has too few to give.
  absl::FunctionRef<uint64_t()> ask_pool;
};

// Takes them in turn: slabs that no engine holds, idle engines, slabs as their
// requests end, and last an engine that is never idle. Returns the bytes that
// come; 0: none do.
uint64_t MakeRoom(uint64_t bytes, const RoomSources& sources);

// An engine that has no request. On the GPU, it could leave now.
struct IdleEngine {
  uint64_t bytes = 0;            // that leave with it
  sched::Micros idle = 0;        // since its last request
  sched::Micros here = 0;        // since it came to the GPU
  sched::Micros activation = 0;  // that its way back takes
  sched::Micros slo_ttft = 0;    // 0: none
  double chance = 0;   // that a request comes soon (IdleTimes::ChanceSoon)
  bool rests = false;  // it was made idle so that it can leave
};

// An engine that came to the GPU stays for so many times what its way took,
// unless requests of another one wait and no other is idle: moves then take at
// most a tenth of the time. Heuristic.
inline constexpr int kStays = 10;

// Harm that is expected if the engine is not on the GPU: the chance that a
// request misses its SLO, and a little for one that does not.
double Harm(const IdleEngine& engine);

// True if it may leave for that. For a next request of `asker` only one leaves
// that harms less, however large both are: one model's requests miss their SLO
// in place of the other's. Pure.
bool MayLeave(EvictionPolicy policy, RoomFor reason, const IdleEngine& engine,
              const IdleEngine& asker);

// The place in `idle` of the engine that is to leave first; nullopt if none
// may. Pure.
absl::optional<size_t> WhoLeaves(EvictionPolicy policy, RoomFor reason,
                                 const std::vector<IdleEngine>& idle,
                                 const IdleEngine& asker = {});

}  // namespace fineserve::evict

#endif  // DAEMON_SCHEDULING_EVICT_EVICTION_POLICY_H_
