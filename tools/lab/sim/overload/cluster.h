#ifndef TOOLS_LAB_SIM_OVERLOAD_CLUSTER_H_
#define TOOLS_LAB_SIM_OVERLOAD_CLUSTER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/lab/sim/overload/cluster_setup.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::sim {

struct ClusterResult {
  std::vector<workload::Outcome> outcomes;
  double seconds = 0;
  double mean_used = 0;      // of the KV without drops, until the last arrival
  double bubbles = 0;        // idle share of stages while a pipeline has work
  double dropped_share = 0;  // of the time in which some weights are dropped
  uint64_t preemptions = 0, drops = 0, restores = 0;
  uint64_t most_dropped_bytes = 0;          // at one time
  std::map<std::string, uint64_t> refused;  // why nothing was dropped
  // For each second: the KV in use over the KV without drops; the KV in use and
  // queued for over the KV at that time; bytes of dropped weights.
  std::vector<double> used, asked, dropped;
};

// Serves the whole trace and treats all its models as one. Requests go to the
// replica, or group, with the least KV in use and requested.
ClusterResult RunCluster(const ClusterSetup& setup,
                         const workload::Trace& trace);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_OVERLOAD_CLUSTER_H_
