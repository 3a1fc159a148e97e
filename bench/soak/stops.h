#ifndef BENCH_SOAK_STOPS_H_
#define BENCH_SOAK_STOPS_H_

#include <cstdint>
#include <random>

#include "bench/soak/clients.h"
#include "bench/soak/fleet_site.h"
#include "bench/soak/progress.h"

namespace fineserve::bench {

struct StopFigures {
  uint64_t proxies = 0, daemons = 0;  // stopped
  double seconds = 0;                 // stopped, in all
  ClientFigures clients;
};

// Stops one of two proxies, or fineserved, for a while under load (SIGSTOP to
// SIGCONT), as happens on a machine that swaps. Checks that every request has
// an answer or a refusal, and that the books are empty once there are no
// requests. Confined to one thread.
class Stops {
 public:
  Stops(FleetSite* fleet, double longest_s, uint64_t seed, Progress* progress)
      : fleet_(*fleet),
        longest_s_(longest_s),
        random_(seed),
        progress_(*progress) {}

  StopFigures Run(uint64_t stops);

 private:
  void StopOnce();
  double Seconds(double least, double most);

  FleetSite& fleet_;
  const double longest_s_;
  std::mt19937_64 random_;
  Progress& progress_;
  StopFigures figures_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_STOPS_H_
