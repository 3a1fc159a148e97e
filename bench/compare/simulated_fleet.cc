#include "bench/compare/simulated_fleet.h"

#include <utility>

#include "daemon/fleet/config/fleet.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/sim/fleet/site.h"
#include "tools/lab/sim/fleet/world.h"

namespace fineserve::bench {

absl::StatusOr<SimulatedRun> Simulate(const std::string& fleet_path,
                                      const std::string& site_path,
                                      const workload::Trace& trace) {
  const absl::StatusOr<config::Fleet> fleet = config::ReadFleet(fleet_path);
  if (!fleet.ok()) return fleet.status();
  const absl::StatusOr<sim::Site> site = sim::ReadSite(site_path);
  if (!site.ok()) return site.status();
  const absl::StatusOr<sim::World> world = sim::MakeWorld(*fleet, *site);
  if (!world.ok()) return world.status();
  const auto model_of = sim::ModelsOf(*world, trace);
  if (!model_of.ok()) return model_of.status();
  absl::StatusOr<sim::RunResult> result =
      sim::Run(*world, trace, *model_of, sim::RunOptions());
  if (!result.ok()) return result.status();
  SimulatedRun run = {std::move(result->outcomes), result->seconds};
  for (const sim::Gpu::Counters& gpu : result->gpus) {
    run.preemptions += gpu.preemptions;
    run.activations += gpu.activations;
  }
  return run;
}

}  // namespace fineserve::bench
