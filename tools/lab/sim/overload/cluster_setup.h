#ifndef TOOLS_LAB_SIM_OVERLOAD_CLUSTER_SETUP_H_
#define TOOLS_LAB_SIM_OVERLOAD_CLUSTER_SETUP_H_

#include <cstdint>

#include "daemon/scheduling/overload/drop_policy.h"
#include "tools/lab/sim/overload/step_cost.h"

namespace fineserve::sim {

// Ways in which the replicas of a model answer a burst beyond their KV.
enum class Overload : uint8_t {
  kRecompute,  // vLLM: the last one started is freed and computed again
  kPipeline,   // vLLM-PP: two replicas always run as one pipeline
  kSwap,       // InferCept: the last one started waits in host memory
  kMigrate,    // Llumnix: one moves to the replica that has the most room
  kMerge,      // KunServe: weights are dropped, groups run as pipelines
  kLend,       // ours: weights are dropped, a peer's are read
};

// Equal replicas of one model. Rates are in bytes/µs, each way.
struct ClusterSetup {
  Overload overload = Overload::kRecompute;
  uint32_t replicas = 1;
  StepCost step;
  uint64_t kv_bytes = 0;  // of a replica
  uint64_t token_bytes = 0;
  uint64_t activation_bytes = 0;  // of a token, between two stages
  uint64_t weight_bytes = 0;
  uint32_t chunk_tokens = 2048;
  uint32_t most_sequences = 1024;
  double network = 0;  // of a replica
  double host_link = 0;
  double memory = 0;  // its own; 0: KV moves within it in no time
  // Number of consecutive replicas that can access each other's memory.
  uint32_t domain = 1;
  overload::Terms terms;
  overload::Thresholds thresholds;
  double pause_us = 0;   // of a step, for a drop or a restoration
  bool restores = true;  // KunServe's and ours
  // Parts of KunServe.
  bool coordinated = true, lookahead = true;
  // If above 0, only mean_used is wanted: the run ends with the last arrival,
  // or as soon as mean_used is sure to exceed this.
  double ends_above = 0;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_OVERLOAD_CLUSTER_SETUP_H_
