#ifndef BENCH_SOAK_DAEMON_KILLS_H_
#define BENCH_SOAK_DAEMON_KILLS_H_

#include <cstddef>
#include <cstdint>
#include <random>

#include "bench/soak/clients.h"
#include "bench/soak/fleet_site.h"
#include "bench/soak/progress.h"

namespace fineserve::bench {

struct DaemonKillFigures {
  uint64_t kills = 0;
  uint64_t engines_replaced = 0;
  ClientFigures clients;
};

// Kills fineserved while its engines serve and requests come through the proxy,
// and starts it again. Checks that engines keep their data, that every request
// has an answer or a refusal, and that the books are empty in the end. Also
// kills and replaces engines, while there is no daemon or when the next one
// runs. Confined to one thread.
class DaemonKills {
 public:
  DaemonKills(FleetSite* fleet, uint64_t seed, Progress* progress)
      : fleet_(*fleet), random_(seed), progress_(*progress) {}

  DaemonKillFigures Run(uint64_t kills);

 private:
  uint64_t Random(uint64_t below) { return random_() % below; }
  void Wait(uint64_t least_ms, uint64_t most_ms);
  bool KillOnce(Clients* clients);
  void KillEngine(size_t engine, Clients* clients);
  // Starts an engine in place of one that was killed.
  bool StartEngine(size_t engine, Clients* clients);
  bool ReplaceSomeEngines(Clients* clients);

  FleetSite& fleet_;
  std::mt19937_64 random_;
  Progress& progress_;
  DaemonKillFigures figures_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_DAEMON_KILLS_H_
