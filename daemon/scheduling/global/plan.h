#ifndef DAEMON_SCHEDULING_GLOBAL_PLAN_H_
#define DAEMON_SCHEDULING_GLOBAL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/scheduling/global/model/footprint.h"
#include "daemon/scheduling/global/score/sharing.h"

namespace fineserve::plan {

inline constexpr double kGib = 1024.0 * 1024 * 1024;

// One replica of a model, and what it should have. Bytes are those on each of
// its GPUs.
struct PlannedReplica {
  std::string model;
  uint32_t number = 0;
  std::vector<std::string> gpus;  // empty: it finds no place
  double target_rate = 0;  // requests/s; of a model, they sum to its rate
  double weight_bytes = 0;
  double activation_bytes = 0;
  double floor_bytes = 0;  // of KV, always its own
  double kv_bytes = 0;     // expected at its target rate, floor included
  double tokens_per_s = 0;
  double context_bytes = {};
};

// A place that rests while it is off: moving there is an activation.
struct RestingPlace {
  std::string model, gpu, node;
  double context_bytes = 0;  // of the GPU
  double process_bytes = 0;  // of the node's host memory, as the next
  double store_bytes = 0;    // copies that no place before it needed
};

// Why places of a model that are off do not rest.
struct NotResting {
  enum class Why { kHostMemory, kGpuMemory, kHostUnknown, kMayNot };
  Why why = Why::kHostMemory;
  // kHostMemory: the model at which the node's list ended, which is this model
  // or one before it. kGpuMemory: the GPU that comes nearest to having room.
  std::string culprit = {};
  double missing_bytes = 0;
  std::string model = {};
  std::string node = {};  // kMayNot: empty, any
  uint32_t places = 0;    // of its places there
};

// A node's host memory, and what uses it.
struct HostUse {
  std::string node;
  double host_bytes = 0;
  double process_bytes = 0;  // of engines that run or rest
  double store_bytes = 0;    // copies that those that rest need
};

// A group that was considered for a replica.
struct ConsideredGroup {
  std::vector<std::string> gpus;
  double score = 0;
};

// The reason for a replica's place.
struct Reason {
  std::string replica;  // "llama-8b", "llama-8b#1"
  std::string model;
  uint32_t turn = 0;    // it was placed as the turn-th, from 1
  std::string order;    // by which the turns were ordered
  std::string measure;  // of the scores
  bool least_is_best = false;
  bool all_fit = false;  // every group considered takes the replica
  std::vector<ConsideredGroup> considered;  // best first
  size_t more_considered = 0;
  std::vector<std::string> rejected;  // "gpu-0: 3.1 GiB short"
  size_t more_rejected = 0;
};

// Something that cannot be done, and the smallest change that fixes it, in one
// line.
struct Trouble {
  std::string model;
  std::string text;
};

// Distance of the plan's goodput from the best.
struct Gap {
  double best = 0;      // tokens/s that no plan exceeds
  double relative = 0;  // 1 − goodput / best, at least 0
  bool exact = false;   // `best` is reached by a plan; else it is a bound
  uint32_t hosted = 0;  // models that the best plan hosts (all, of a bound)
};

// Price of losing a GPU, or of adding another one of the same kind.
struct GpuPrice {
  std::string gpu;
  int hosted = 0;       // models more, or fewer
  double tokens = 0;    // tokens/s more, or less
  double headroom = 0;  // the same at `burst` times the rates
};

struct Plan {
  std::string policy;
  Tier tier = Tier::kOurs;
  std::string source;
  Sharing sharing = Sharing::kPool;
  std::vector<PlannedReplica> replicas;  // by model, then number
  Worth worth;
  double demand = 0;   // tokens/s that all models ask for
  double kvpr_v1 = 0;  // highest KVPR (kv_pressure.h)
  double kvpr_v3 = 0;
  std::vector<Reason> reasons;  // in the order of the turns
  std::vector<Trouble> troubles;
  Gap gap;
  std::vector<GpuPrice> lost;   // by GPU; on a large cluster, only of a few
  std::vector<GpuPrice> added;  // of each size that there is
  // `resting`, `not_resting` and `hosts` are empty if no node's host memory is
  // known (resting.h). They are by node, in the order in which places were
  // chosen.
  std::vector<RestingPlace> resting = {};
  std::vector<NotResting> not_resting = {};
  std::vector<HostUse> hosts = {};
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_PLAN_H_
