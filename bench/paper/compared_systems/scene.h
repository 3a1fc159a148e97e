#ifndef BENCH_PAPER_COMPARED_SYSTEMS_SCENE_H_
#define BENCH_PAPER_COMPARED_SYSTEMS_SCENE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/scheduling/global/model/snapshot.h"
#include "tools/lab/sim/gpu/setup.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {

inline constexpr uint32_t kGpusOfNode = 8;

// A workload and its machines: a snapshot to plan from, and the further input
// of a simulation. Plain value.
struct Scene {
  plan::Snapshot snapshot;
  sim::Slowdown slowdown;
  uint32_t chunk_tokens = 2048;
  uint32_t longest_tokens = 4096;  // --max-model-len of each engine
  // Returns the requests of one seed to the snapshot's models, by name.
  std::function<workload::Trace(uint64_t seed)> load;
};

// All data from which figures are made.
struct Data {
  std::vector<plan::Profile> profiles;        // of FineServe's authors
  std::vector<workload::Lengths> sharegpt;    // first turns, as FineServe cuts
  std::vector<workload::Lengths> multi_turn;  // with accumulated context
  workload::Trace arena;                      // Prism's own input
  std::vector<workload::Lengths> arxiv;
  workload::Trace servegen;    // its second day, an hour
  workload::Trace azure_code;  // 30 minutes
  workload::Trace azure;       // of code and conversations, 30 minutes each
  workload::Trace servegen_bursts;  // its first day, 30 minutes
};

// Reads the measurements and traces of a folder; ends the bench if it cannot.
Data ReadData(const std::string& folder);

// Amount of simulation.
struct Effort {
  uint32_t seeds = 5;
  double seconds = 120;  // of arrivals
  bool quick = false;    // fewer points
};

// Factors by which a step is slower, by the number of working engines, and
// their source. No figure predicts interference; it is an input.
struct SlowdownSource {
  const char* name;
  const char* source;
  sim::Slowdown slowdown;
};
// Figures use the first unless they say otherwise; the others show how much
// depends on the choice.
const std::vector<SlowdownSource>& Slowdowns();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_SCENE_H_
