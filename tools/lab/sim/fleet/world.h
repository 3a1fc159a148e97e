#ifndef TOOLS_LAB_SIM_FLEET_WORLD_H_
#define TOOLS_LAB_SIM_FLEET_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/fleet/config/fleet.h"
#include "tools/lab/sim/fleet/site.h"
#include "tools/lab/sim/gpu/setup.h"
#include "tools/lab/sim/lead/setup.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::sim {

// Engines of one model on one GPU, of which the proxy knows a rate and a wait.
struct Replica {
  uint32_t gpu = 0;
  uint32_t model = 0;  // place in the GPU's list
  double target_rate = 0;
  struct Engine {
    uint32_t place;  // among the GPU's engines
    double target_rate;
  };
  std::vector<Engine> engines = {};
};

struct WorldModel {
  std::string name;
  workload::Slo slo;
  sched::Profile profile;         // as the fleet file says
  std::vector<Replica> replicas;  // in order of GPU
  double bytes_per_token = 0;     // of prompts; 0: the proxy knows their tokens
};

// Everything that is simulated, in the form that the run needs. Use it as the
// seam for placements: to put other engines on other GPUs, make it from another
// config::Fleet.
struct World {
  std::vector<std::string> gpu_names;
  std::vector<GpuSetup> gpus;
  std::vector<WorldModel> models;
  bool least_load = false;                 // [proxy] replicas
  absl::optional<PlanningSetup> planning;  // none: no engine moves
};

// Puts engines on the GPUs that the fleet names, and takes everything else from
// the site. Places do not run until a planner wants them. InvalidArgument, with
// the fix, if something that a simulation needs is missing.
absl::StatusOr<World> MakeWorld(const config::Fleet& fleet, const Site& site);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_FLEET_WORLD_H_
