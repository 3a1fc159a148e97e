#ifndef BENCH_PAPER_COMPARED_SYSTEMS_SERVE_H_
#define BENCH_PAPER_COMPARED_SYSTEMS_SERVE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/paper/compared_systems/scene.h"
#include "bench/paper/compared_systems/system.h"
#include "bench/report/interval.h"
#include "daemon/scheduling/global/model/assignment.h"
#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/sim/fleet/world.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::bench {

// A system's placement of a scene's models, in the system's order. Names of
// GPUs by model; a model that finds no place is absent.
struct Placement {
  std::map<std::string, std::vector<std::string>> gpus;
  std::vector<std::string> order;
};
Placement PlaceBy(const System& system, const plan::Snapshot& snapshot);

// Returns the scene as the system serves it. Has only engines of TP 1: other
// models are left out, like models without a place, and their requests are
// refused. If idle engines leave, each model has a place: they are placed on
// GPUs that are enlarged until a fifth is left for KV.
sim::World WorldOf(const System& system, const Scene& scene);

// Measurements of one seed.
struct Measured {
  std::vector<workload::Outcome> outcomes;  // by model as WorldOf has them
  double seconds = 0;                       // until the last request ended
  workload::Summary all;
  std::map<std::string, workload::Summary> models;
  double on_time_tokens_per_s = 0;  // of requests that kept their SLO
  double preemptions = 0;
  double evictions = 0, activations = 0;
  double thrashes = 0;  // evictions soon after an activation
};
Measured ServeOnce(const System& system, const Scene& scene, uint64_t seed);
// Does the same for a world that was made before. If `is_clairvoyant`, engines
// leave and come back by the coming requests of the trace.
Measured ServeWorld(sim::World world, const workload::Trace& trace,
                    bool is_clairvoyant = false);

// All seeds, from 1.
struct Runs {
  std::vector<Measured> of_seed;

  template <typename Get>
  std::vector<double> Values(Get get) const {
    std::vector<double> values;
    for (const Measured& m : of_seed) values.push_back(get(m));
    return values;
  }
  // In %.
  std::vector<double> Attainment() const {
    return Values([](const Measured& m) { return 100 * m.all.attainment; });
  }
  std::vector<double> Tokens() const {
    return Values(
        [](const Measured& m) { return m.all.decode_tokens_per_second; });
  }
  std::vector<double> OnTimeTokens() const {
    return Values([](const Measured& m) { return m.on_time_tokens_per_s; });
  }
  std::vector<double> Requests() const {
    return Values([](const Measured& m) { return m.all.requests_per_second; });
  }
};
Runs Serve(const System& system, const Scene& scene, uint32_t seeds);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_SERVE_H_
