#ifndef BENCH_REPLAN_PLANNED_FLEET_H_
#define BENCH_REPLAN_PLANNED_FLEET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/fleet/config/profile_file.h"
#include "tools/lab/workload/trace.h"
#include "tools/lab/workload/zones.h"

namespace fineserve::bench {

// The fleet of the bench, for real processes and for the simulator: two GPUs,
// and identical models that have a place on each.
struct PlannedFleet {
  static constexpr workload::Lengths kLengths = {200, 40};
  static constexpr double kSloTtft = 2;  // s

  static constexpr int kGpus = 2;
  static constexpr uint32_t kMib = 1 << 20;
  static constexpr uint32_t kPoolMib = 256, kSlabMib = 8;
  // As little as the engines' scratch, one slab each, leaves room for: the
  // planner takes for KV what weights leave of the memory, not of the pool.
  static constexpr uint32_t kWeightMib = 16;
  static constexpr uint32_t kMemoryMib = kPoolMib + 4 * kWeightMib;
  static constexpr uint32_t kPageKib = 512, kBlockTokens = 16;
  static constexpr uint32_t kMostSequences = 64, kLongestTokens = 512;
  static constexpr uint32_t kTokenBytes = kPageKib * 1024 / kBlockTokens;
  static constexpr uint32_t kChunkTokens = 2048;

  // The duration of an engine's step in µs, as of a large model: an answer
  // takes 4 s, so that a few requests a second, which these processes can
  // handle on few cores, hold much KV.
  static constexpr double kBaseUs = 100'000, kTokenUs = 50, kSequenceUs = 60;

  // [planner], in s: a sixth of the shipped values, since the load is sped up;
  // the period is the shortest that is allowed.
  static constexpr double kPeriod = 1, kWindow = 10, kCoolDown = 5;
  static constexpr double kStart = 100, kDrain = 50, kLeastGain = 0.2;

  static std::vector<std::string> Models() { return {"a", "b", "c"}; }
  // Part of a GPU's pool that requests with kLengths need.
  static workload::KvNeed Need();
  static config::MeasuredProfile Profile(const std::string& model);
};

}  // namespace fineserve::bench

#endif  // BENCH_REPLAN_PLANNED_FLEET_H_
