#ifndef BENCH_SOAK_ROUNDS_H_
#define BENCH_SOAK_ROUNDS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "bench/soak/clients.h"
#include "bench/soak/fleet_site.h"
#include "bench/soak/progress.h"

namespace fineserve::bench {

// Starts the fleet with `proxies` proxies and lets clients ask it, each request
// for `limit` at most. In each round `trouble` disturbs the fleet; then the
// clients rest, the fleet must come to rest and serve every model at every
// proxy, and the clients go on. Ends early if something fails or the run is
// interrupted. Returns the clients' figures.
ClientFigures RunRounds(FleetSite* fleet, size_t proxies,
                        std::chrono::seconds limit, uint64_t seed,
                        uint64_t rounds, Progress* progress,
                        const std::function<bool(Clients*)>& trouble);

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_ROUNDS_H_
