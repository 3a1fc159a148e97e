#ifndef BENCH_SOAK_STRESS_H_
#define BENCH_SOAK_STRESS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/soak/progress.h"
#include "bench/soak/soak_site.h"

namespace fineserve::bench {

struct StressFigures {
  uint64_t kills = 0;     // of fineserved
  uint64_t programs = 0;  // that ran in the processes, by exec
  uint64_t rounds = 0;
  uint64_t refused = 0;  // allocations, for want of slabs
  uint64_t outside = 0;  // allocations that the driver served
  uint64_t starts = 0;
  uint64_t warned = 0;  // starts outside of the pool that said so
};

// Tests whole slabs under everything that processes do
// (tools/lab/engines/stress_engine), while fineserved is killed repeatedly and
// its supervisor keeps the pool. Checks that no process finds foreign bytes,
// gets an error, or is outside of the pool without a message, and that every
// slab is free in the end. Confined to one thread.
class Stress {
 public:
  Stress(SoakSite* site, uint64_t seed, Progress* progress)
      : site_(*site), random_(seed), progress_(*progress) {}

  // Runs two processes of four threads each, which fork and exec, for
  // `seconds`, with a kill every 0.3 s.
  void Run(double seconds);
  // Starts `starts` processes that allocate once, with a kill after about every
  // 40 of them.
  void StartMany(uint64_t starts);

  const StressFigures& figures() const { return figures_; }

 private:
  bool StartDaemon();
  void KillDaemon();
  std::unique_ptr<Process> StartEngine(std::vector<std::string> flags);
  // Judges the engine by its output and its exit status.
  void Judge(Process* engine);

  SoakSite& site_;
  std::mt19937_64 random_;
  Progress& progress_;
  uint64_t started_ = 0;
  StressFigures figures_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_STRESS_H_
