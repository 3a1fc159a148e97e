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

// Whole slabs under everything that processes do
// (tools/lab/engines/stress_engine), while fineserved is killed again and again
// and its supervisor keeps the pool. No process may find foreign bytes, get an
// error, or be outside of the pool without a word, and in the end every slab is
// free. Confined to one thread.
class Stress {
 public:
  Stress(SoakSite* site, uint64_t seed, Progress* progress)
      : site_(*site), random_(seed), progress_(*progress) {}

  // Two processes of four threads each, that fork and exec, for so long, and a
  // kill every 0.3 s.
  void Run(double seconds);
  // So many processes that allocate once; a kill after about 40 of them.
  void StartMany(uint64_t starts);

  const StressFigures& figures() const { return figures_; }

 private:
  bool StartDaemon();
  void KillDaemon();
  std::unique_ptr<Process> StartEngine(std::vector<std::string> flags);
  // Judges by its output and its end.
  void Judge(Process* engine);

  SoakSite& site_;
  std::mt19937_64 random_;
  Progress& progress_;
  uint64_t started_ = 0;
  StressFigures figures_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_STRESS_H_
