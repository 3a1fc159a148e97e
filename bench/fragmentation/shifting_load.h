#ifndef BENCH_FRAGMENTATION_SHIFTING_LOAD_H_
#define BENCH_FRAGMENTATION_SHIFTING_LOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fragmentation/pools.h"

namespace fineserve::bench {

// A period in which each model's requests arrive at a constant rate.
struct Phase {
  std::string name;
  double seconds;
  std::vector<double> per_second;  // by model
};

// The course of a run, second by second and phase by phase.
struct Story {
  struct Second {
    std::vector<double> used_bytes;  // KV, by model
    std::vector<double> waiting;     // requests, by model
  };
  struct PhaseTotal {
    double used_of_pool = 0;       // mean
    double mean_waiting = 0;       // requests
    double mean_wait_seconds = 0;  // of those that began in it
    uint64_t begun = 0;
  };
  std::vector<Second> seconds;
  std::vector<PhaseTotal> phases;
};

// Plays phases on a pool: requests of real lengths (Poisson arrivals) wait in
// their model's queue until their KV fits, hold it for `seconds_per_token` ×
// tokens, and leave. Models only memory: no request slows another down, so
// pools differ only in which requests wait for memory. The same seed gives the
// same requests to every pool.
Story Play(const std::vector<Model>& models, const std::vector<Phase>& phases,
           const std::vector<uint32_t>& lengths, double seconds_per_token,
           uint64_t pool_bytes, Pool* pool);

}  // namespace fineserve::bench

#endif  // BENCH_FRAGMENTATION_SHIFTING_LOAD_H_
