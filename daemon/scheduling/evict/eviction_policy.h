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
  // Least expected harm per byte: the chance that a request comes soon, which
  // counts far more if the activation takes longer than the model's TTFT SLO.
  kSlack,
  // Longest idle first, as llama-swap.
  kLru,
  // As in Prism: idle for at least 45 s, the largest TTFT SLO first.
  kPrism,
};
absl::optional<EvictionPolicy> EvictionPolicyNamed(absl::string_view name);

// The reason for which memory is needed.
enum class RoomFor {
  kStart,     // an engine starts
  kRequests,  // that wait for their model
  // The next request of a model, after one was refused because the activation
  // would have taken longer than its SLO.
  kNext,
  kKv,  // that models on the GPU lack
};

// How other engines help one that lacks memory.
enum class Room {
  kComes,  // one leaves, or rests so that it can
  kNone,
  // No engine leaves, and engines with requests give no slab either, since the
  // memory is only for the next request of a model.
  kNotForNext,
};

// Memory that may come for an engine that lacks it.
struct RoomSources {
  uint64_t idle_bytes = 0;  // free ones, and slabs that no engine holds
  // Makes an idle engine leave or, with `may_rest`, makes one that is never
  // idle give way.
  absl::FunctionRef<Room(bool may_rest)> evict;
  // Asks the pool for slabs, including those of engines with requests. Returns
  // their bytes; 0 if the pool has too few to give.
  absl::FunctionRef<uint64_t()> ask_pool;
};

// Tries the sources in turn: slabs that no engine holds, idle engines, slabs as
// their requests end, and finally an engine that is never idle. Returns the
// bytes that will come; 0 if none do.
uint64_t MakeRoom(uint64_t bytes, const RoomSources& sources);

// An engine without requests. If it is on the GPU, it could leave now.
struct IdleEngine {
  uint64_t bytes = 0;            // that leave with it
  sched::Micros idle = 0;        // since its last request
  sched::Micros here = 0;        // since it came to the GPU
  sched::Micros activation = 0;  // that its way back takes
  sched::Micros slo_ttft = 0;    // 0: none
  double chance = 0;   // that a request comes soon (IdleTimes::ChanceSoon)
  bool rests = false;  // it was made idle so that it can leave
  bool has_declined = false;  // a short while ago it could not leave
};

// An engine that has come to the GPU stays there for this many times as long as
// its activation took, unless another engine's requests wait and no other
// engine is idle. But for that exception, coming back takes at most a tenth of
// the time; leaving is not counted. Heuristic.
inline constexpr int kStays = 10;

// Returns the expected harm while the engine is off the GPU: the chance that a
// request misses its SLO, and a little for a request that does not.
double Harm(const IdleEngine& engine);

// True if the engine may leave for this reason. For the next request of
// `asker`, the engine's absence must do less harm than that of `asker`,
// whatever their sizes, because one model's requests miss their SLO in place of
// the other's. Pure.
bool MayLeave(EvictionPolicy policy, RoomFor reason, const IdleEngine& engine,
              const IdleEngine& asker);

// Returns the index in `idle` of the engine that should leave first; nullopt if
// none may. Pure.
absl::optional<size_t> WhoLeaves(EvictionPolicy policy, RoomFor reason,
                                 const std::vector<IdleEngine>& idle,
                                 const IdleEngine& asker = {});

}  // namespace fineserve::evict

#endif  // DAEMON_SCHEDULING_EVICT_EVICTION_POLICY_H_
