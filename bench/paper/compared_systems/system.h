#ifndef BENCH_PAPER_COMPARED_SYSTEMS_SYSTEM_H_
#define BENCH_PAPER_COMPARED_SYSTEMS_SYSTEM_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/scheduling/evict/eviction_policy.h"
#include "daemon/scheduling/global/model/footprint.h"
#include "daemon/scheduling/local/policy/policy.h"

namespace fineserve::bench {

// How the engines of a GPU get KV in the simulator.
enum class Parts {
  kPool,       // one pool for all, by our share policy
  kFootprint,  // fixed, by F_M (plan::Sharing::kFootprint)
  kEqual,      // fixed, the same for each (plan::Sharing::kEqual)
  // As in the released slab manager: KV gets the device's memory less 1.8 times
  // the nominal weights. Models with the same number of layers share a pool,
  // whose part is proportional to rate times layers.
  kLayers,
};

// The scheduler that decides when a prompt starts.
enum class Local {
  kFineServe,     // ours: Algorithm 2 with a floor for each length class
  kAlgorithm2,    // the paper's, by our predictor
  kMooreHodgson,  // Prism's Algorithm 2
  kFcfs,          // first come, first served; no request is dropped
  // The schedulers of the FineServe repository (released_policies.h).
  kReleasedAlgorithm2,
  kReleasedPrism,
  kReleasedFcfs,
};

// How engines without requests leave the GPU for others, and come back.
struct Eviction {
  evict::EvictionPolicy policy = evict::EvictionPolicy::kSlack;
  // Durations for the largest engine to come back and to leave; 0: by the
  // link's rate, and as measured.
  double back_s = 0, leave_s = 0;
  bool takes_turns = false;  // one engine at a time is on a GPU
  // True if it knows when each model's next request comes; used as a bound.
  bool is_clairvoyant = false;
};

// A system as this bench serves it. Plain value.
struct System {
  std::string name;
  std::string placement;  // a policy of daemon/scheduling/global
  plan::Tier footprint = plan::Tier::kPaper;
  Parts parts = Parts::kPool;
  Local local = Local::kFineServe;
  // True for the released engines, which run at most the batch whose TTFT keeps
  // the SLO (slo_max_batch_size); others run up to 256 sequences.
  bool slo_batch = false;
  // Addition of each neighbour to a step, as an input of the planner.
  double co_tenant_slowdown = 0;
  // If none, all engines stay, and models that do not fit have no place. Only
  // with a pool.
  absl::optional<Eviction> eviction = {};

  // Returns placement, KV, order of starts, and the behaviour without KV, in
  // one line.
  std::string Description() const;
};

System Ours();                        // fineserve-opt
System OursEvicting();                // with idle engines that leave
System FineServeOf(plan::Tier tier);  // kPaper or kReleased
System PrismStarOf(plan::Tier tier);  // of FineServe's evaluation
System StaticStarOf(plan::Tier tier);
System Partitioned();   // Prism's S-Partition
System MuxServePlus();  // Prism's MuxServe++
System Prism();         // as its own paper has it, but for moves
System PrismEvicting();
System Qlm();  // Prism's QLM: models take turns on a GPU, by stop and start
// Our system, but the engine that has been idle longest leaves, as in
// llama-swap.
System LongestIdleLeaves();
System Clairvoyant();  // ours, and each model's next request is known

// "FineServe (paper)".
std::string WithTier(const std::string& name, plan::Tier tier);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_SYSTEM_H_
