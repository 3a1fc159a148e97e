#ifndef DAEMON_FINESERVED_EXPORTER_SNAPSHOT_FIXTURE_H_
#define DAEMON_FINESERVED_EXPORTER_SNAPSHOT_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/contract/metrics/snapshot.h"

namespace fineserve::exporter {

// Returns a snapshot of a daemon with a fleet, a planner and this many engines.
// Each engine is alive, in the pool and in the fleet, and has its own model.
inline metrics::Snapshot SnapshotWith(uint32_t engines) {
  metrics::Snapshot snapshot;
  snapshot.identity = std::make_shared<metrics::Identity>(
      metrics::Identity{"1.0", 7, "GPU-x", "Emulated", 0x2a, 1000});
  snapshot.pool.slab_bytes = 1000;
  snapshot.admission.emplace().proxies = 1;
  snapshot.plan.emplace();
  for (uint32_t i = 0; i < engines; ++i) {
    const std::string name = absl::StrCat("e", i);
    metrics::PoolEngine in_pool;
    in_pool.name = name;
    in_pool.slabs[static_cast<size_t>(abi::SlabState::kPartial)] = 2;
    snapshot.pool.engines.push_back(in_pool);
    snapshot.pool.engine_starts.push_back({name, 1});
    metrics::FleetEngine in_fleet;
    in_fleet.name = name;
    in_fleet.model = absl::StrCat("m", i);
    in_fleet.running = 1;
    snapshot.admission->engines.push_back(in_fleet);
    metrics::ModelFigures model;
    model.name = in_fleet.model;
    model.admitted = 1;
    model.wanted_replicas = 1;
    snapshot.admission->models.push_back(model);
  }
  return snapshot;
}

}  // namespace fineserve::exporter

#endif  // DAEMON_FINESERVED_EXPORTER_SNAPSHOT_FIXTURE_H_
