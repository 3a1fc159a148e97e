#include "bench/soak/daemon_kills.h"

#include <signal.h>
#include <unistd.h>

#include "bench/soak/rounds.h"

namespace fineserve::bench {
DaemonKillFigures DaemonKills::Run(uint64_t kills) {
  figures_.clients = RunRounds(
      &fleet_, /*proxies=*/1, Clients::kLimit, random_(), kills, &progress_,
      [&](Clients* clients) { return KillOnce(clients); });
  return figures_;
}

void DaemonKills::Wait(uint64_t least_ms, uint64_t most_ms) {
  const uint64_t ms = least_ms + Random(most_ms - least_ms);
  usleep(static_cast<useconds_t>(1000 * ms));
}

bool DaemonKills::KillOnce(Clients* clients) {
  Wait(50, 1000);
  fleet_.site().KillDaemon();
  ++figures_.kills;
  if (!fleet_.EnginesAreWell()) return false;
  const size_t engine = Random(3 * FleetSite::kEngines);
  const bool dies = engine < FleetSite::kEngines;
  if (dies) KillEngine(engine, clients);
  // A proxy regards a daemon as silent after 2.5 s.
  Wait(1, 3500);
  if (!fleet_.StartDaemon()) return false;
  if (dies && !StartEngine(engine, clients)) return false;
  Wait(50, 1500);
  if (!ReplaceSomeEngines(clients)) return false;
  Wait(50, 500);
  return true;
}

void DaemonKills::KillEngine(size_t engine, Clients* clients) {
  if (engine < FleetSite::kServing) {
    clients->EngineDies(FleetSite::Models()[engine]);
  }
  fleet_.engine(engine).Signal(SIGKILL);
  fleet_.engine(engine).Wait();
}

bool DaemonKills::StartEngine(size_t engine, Clients* clients) {
  const bool started = fleet_.StartEngine(engine);
  if (engine < FleetSite::kServing) {
    clients->EngineServes(FleetSite::Models()[engine]);
  }
  ++figures_.engines_replaced;
  return started;
}

bool DaemonKills::ReplaceSomeEngines(Clients* clients) {
  for (size_t i = 0; i < FleetSite::kEngines; ++i) {
    if (Random(2) == 0) continue;
    KillEngine(i, clients);
    if (!StartEngine(i, clients)) return false;
  }
  return true;
}

}  // namespace fineserve::bench
