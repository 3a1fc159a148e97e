#ifndef BENCH_COMPARE_POINT_H_
#define BENCH_COMPARE_POINT_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "bench/report/report.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::bench {

// One trace at one load, run by real processes and by the simulator.

struct Side {
  workload::Summary summary;
  double preemptions = 0;
  double activations = 0;  // of engines that had left the GPU
};

struct Point {
  std::string name;
  Side real, simulated;
  // The simulation with one daemon for all engines; none if models have no
  // replicas.
  absl::optional<Side> one_queue;
  double host_busy = 0;  // of all cores during the real run, 0 … 1
  double late_steps = 0;

  // Above this, the host and not the engines' step time decides when tokens
  // come.
  static constexpr double kMostBusy = 0.8;
  bool counts() const { return host_busy <= kMostBusy; }

  // Percentage points by which the simulator is too optimistic.
  double AttainmentDifference() const;
  // Share by which many daemons do worse than one queue, in the simulation.
  double LostToOneQueue(const Side& side) const;
};

// Percentage by which `simulated` differs from `real`, which is not 0.
double PercentOff(double simulated, double real);

// Summarises the requests that began at `from_s` or later. Until then the proxy
// and the scheduler learn, and the engines fill up.
workload::Summary SummaryFrom(double from_s,
                              const std::vector<workload::Outcome>& outcomes,
                              double seconds);

// The columns of Row.
std::string Header();
std::string Row(const Point& point);

// Adds each point's figures, and claims about the worst of the points that
// count. Claims nothing if none counts.
void Tell(const std::vector<Point>& points, Report* report);

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_POINT_H_
