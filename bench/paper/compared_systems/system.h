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

// Way in which the engines of a GPU get KV in the simulator.
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
  // As the FineServe repository has them (released_policies.h).
  kReleasedAlgorithm2,
  kReleasedPrism,
  kReleasedFcfs,
};

// Engines without requests leave the GPU for others, and come back.
struct Eviction {
  evict::EvictionPolicy policy = evict::EvictionPolicy::kSlack;
  // Durations of the largest engine's ways; 0: as the link's rate and a
  // measured way out have it.
  double back_s = 0, leave_s = 0;
  bool takes_turns = false;  // one engine at a time is on a GPU
  // Knows when each model's next request comes: used as a bound.
  bool is_clairvoyant = false;
};

// A system as it is served here. Plain value.
struct System {
  std::string name;
  std::string placement;  // a policy of daemon/scheduling/global
  plan::Tier footprint = plan::Tier::kPaper;
  Parts parts = Parts::kPool;
  Local local = Local::kFineServe;
  // The released engines run at most the batch whose TTFT keeps the SLO
  // (slo_max_batch_size); others up to 256 sequences.
  bool slo_batch = false;
  // Addition of each neighbour to a step, as an input of the planner.
  double co_tenant_slowdown = 0;
  // None: all stay, and models that do not fit have no place. With a pool
  // alone.
  absl::optional<Eviction> eviction = {};

  // In one line: placement, KV, order of starts, what happens without KV.
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
// Ours, but the longest idle leaves, as llama-swap has it.
System LongestIdleLeaves();
System Clairvoyant();  // ours, and each model's next request is known

// "FineServe (paper)".
std::string WithTier(const std::string& name, plan::Tier tier);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_SYSTEM_H_
