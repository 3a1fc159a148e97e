#ifndef TOOLS_LAB_SIM_GPU_SETUP_H_
#define TOOLS_LAB_SIM_GPU_SETUP_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/pool/geometry/format.h"
#include "daemon/pool/geometry/pool_geometry.h"
#include "daemon/scheduling/evict/eviction_policy.h"
#include "daemon/scheduling/local/engine_load.h"
#include "daemon/scheduling/local/policy/make_policy.h"
#include "tools/lab/sim/simulated_engine/engine.h"
#include "tools/lab/sim/simulated_engine/step_time.h"

namespace fineserve::sim {

// The factor by which a step is slower while several engines of a GPU work. It
// is an input, never a result, so each figure must name its source.
struct Slowdown {
  // factors[n - 1] holds while n engines work. Beyond the end, each further
  // engine adds as much as the last one did. If it is empty, the engines share
  // the GPU by time slices, and each of n engines takes n times as long (an
  // assumption: not measured on a GPU).
  std::vector<double> factors;

  double of(size_t working) const {
    if (factors.empty())
      return static_cast<double>(std::max<size_t>(1, working));
    if (working <= factors.size())
      return factors[std::max<size_t>(1, working) - 1];
    const double last = factors.back();
    const double before =
        factors.size() > 1 ? factors[factors.size() - 2] : last;
    return last +
           static_cast<double>(working - factors.size()) * (last - before);
  }
};

struct EngineSetup {
  std::string name;    // unique on its GPU
  uint32_t model = 0;  // place in GpuSetup::models
  EngineLimits limits;
  StepTime step_time;
  double prefix_hits = 0;  // part of each prompt that is in the prefix cache
  uint64_t kv_token_bytes = 0;
  // Requests with more tokens in all are refused by the engine (vLLM:
  // --max-model-len).
  uint32_t longest_tokens = 8192;
  // Format of the engine's view. As real engines do, the engine asks for a
  // floor of at least its longest request.
  slab::Format format;
  uint64_t floor_bytes = 0;
  uint64_t cap_bytes = 0;  // 0: no limit
  // For an engine without a view: how many tokens its KV holds; 0: it has a
  // view.
  uint64_t own_tokens = 0;
  // Bytes of weights that leave the GPU with the engine (EvictionSetup).
  uint64_t weight_bytes = 0;
  // True if the engine runs from the beginning; otherwise it runs from
  // Gpu::Start on.
  bool runs = true;

  // Returns the number of a prompt's tokens that are in the prefix cache: whole
  // blocks, and never the whole prompt.
  uint32_t CachedTokens(uint32_t prompt) const {
    const auto tokens = static_cast<uint32_t>(prefix_hits * prompt);
    return std::min(tokens - tokens % limits.block_tokens, prompt - 1);
  }
};

// Durations of the pool's work; µs.
struct PoolTimes {
  Micros fill_us = 0;  // to fill one slab with zeros
  // Interval at which the daemon looks while it expects something
  // (daemon/fineserved/server, kRestlessPollUs). A longer interval costs
  // accuracy while engines wait for each other's slabs, and saves simulation
  // time.
  Micros poll_us = 10'000;
};

// Durations between client, proxy, daemon and engine, in µs.
struct PathTimes {
  Micros ask_us = 0;     // from the client until the daemon knows the request
  Micros send_us = 0;    // from the verdict until the engine has it
  Micros answer_us = 0;  // from the engine's token until client and daemon know
  // Interval at which a proxy reports what its streams have generated (kBeat of
  // daemon/proxy/admission/admission_channel.cc).
  Micros beat_us = 250'000;
};

// Engines can be evicted for other engines, and come back (design note 0042).
// The host's store has copies of them from the start. Needs views.
struct EvictionSetup {
  evict::EvictionPolicy policy = evict::EvictionPolicy::kSlack;
  // For weights and KV together: the pool gets what the weights leave of these
  // bytes.
  uint64_t gpu_bytes = 0;
  uint64_t headroom_bytes = 0;  // that the pool leaves free
  double link_bytes_per_us = 0;
  Micros leave_us = 0;  // of an eviction, of which nothing has to be copied
  // For a bound: returns the time after `now` at which the next request for the
  // model (place in GpuSetup::models) comes; kNever: none comes. If it is set,
  // the engine whose next request comes last leaves, whatever the policy, and
  // engines come back ahead of their next requests.
  std::function<Micros(uint32_t model, Micros now)> next_request = {};
  uint64_t scratch_bytes = 0;  // of each view on the GPU
};

struct GpuSetup {
  std::vector<sched::ModelSpec> models;  // as the scheduler knows them
  std::vector<EngineSetup> engines;
  slab::PoolGeometry geometry;  // of its pool; slab_count 0: no pool
  Slowdown slowdown;
  PoolTimes pool;
  PathTimes path;
  absl::optional<EvictionSetup> eviction = {};  // none: all stay
  std::string policy = "fineserve";
  double floor_share = sched::kDefaultFloorShare;
  // Makes the scheduler's policy instead of `policy` and `floor_share`, for a
  // baseline that does not ship.
  std::function<std::unique_ptr<sched::Policy>()> make_policy = nullptr;
  // Limit on the steps that are simulated at once. A limit of 1 only makes it
  // slower.
  uint32_t most_steps = UINT32_MAX;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_GPU_SETUP_H_
