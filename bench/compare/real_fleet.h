#ifndef BENCH_COMPARE_REAL_FLEET_H_
#define BENCH_COMPARE_REAL_FLEET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/compare/compared_fleet.h"
#include "bench/serving/clients.h"
#include "bench/serving/fleet_service.h"
#include "bench/workload/trace.h"

namespace fineserve::bench {

// ComparedFleet as processes. All end with this object. Confined to the thread
// that makes it.
class RealFleet {
 public:
  explicit RealFleet(const FleetShape& shape);

  // Starts everything and waits until each model answers. False, after a
  // message on standard error, if that fails or SIGINT came.
  bool Start();
  RunOutcome Send(const workload::Trace& trace);

  // Counts of all engines since they started.
  struct Counters {
    uint64_t preemptions = 0;
    uint64_t late_steps = 0;  // whose copies took longer than the modelled step
  };
  // False, after a message, if an engine does not tell.
  bool Read(Counters* counters) const;

  std::string fleet_path() const { return service_.Path("fleet.toml"); }
  // The same fleet, placed otherwise, for the simulator.
  std::string FleetText(EnginePlacement placement) const;
  // A file beside it.
  std::string Path(const std::string& name) const {
    return service_.Path(name);
  }

 private:
  FleetService service_;
  const FleetShape shape_;
  std::vector<uint16_t> engine_ports_;  // by engine
  std::vector<std::string> gpus_;       // their UUIDs, once it has started
};

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_REAL_FLEET_H_
