#ifndef DAEMON_SCHEDULING_GLOBAL_TESTDATA_RANDOM_SNAPSHOT_H_
#define DAEMON_SCHEDULING_GLOBAL_TESTDATA_RANDOM_SNAPSHOT_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/model/snapshot.h"

namespace fineserve::plan {

// Load of a model: relative request rate, and mean numbers of tokens.
struct ModelLoad {
  double rate, prompt_tokens, output_tokens;
};

// Distribution from which instances are drawn.
struct RandomKind {
  uint32_t models = 6;
  uint32_t gpus = 3;
  uint32_t gpus_of_node = 4;
  // Weights and activations of all models, as a fraction of all memory. This is
  // a maximum: heavy models are drawn again while they exceed it.
  double weights = 0.6;
  // KV that the rates need, as a fraction of what the weights leave.
  double pressure = 1;
  bool mixed_gpus = false;   // 40, 80 and 141 GB; else 80 GB
  bool one_replica = false;  // each; else as many as rate and SLO need
  // Loads to draw from; if empty, Zipf-like rates and the mean lengths of the
  // public sets (ShareGPT first turn and accumulated, arXiv summarisation).
  std::vector<ModelLoad> loads = {};
};

// Returns models with these profiles, and with SLOs of 20 times the TTFT alone.
// One seed gives one instance.
Snapshot RandomSnapshot(const std::vector<Profile>& profiles,
                        const RandomKind& kind, uint64_t seed);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_TESTDATA_RANDOM_SNAPSHOT_H_
