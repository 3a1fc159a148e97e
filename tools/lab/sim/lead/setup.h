#ifndef TOOLS_LAB_SIM_LEAD_SETUP_H_
#define TOOLS_LAB_SIM_LEAD_SETUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/fleet/config/fleet.h"
#include "tools/lab/sim/core/agenda.h"

namespace fineserve::sim {

// Times to start and stop an engine. They are inputs, as everything of the site
// is.
struct HandTimes {
  Micros start_us = 0;  // from its start until it serves, but for its weights
  uint64_t weights_per_s = 1;  // bytes of them that come to the GPU a second
  Micros stop_us = 0;  // from when it is asked to end until its memory is free
  // Bytes of weights a second that come back to a process that rested off the
  // GPU. An engine that may be evicted rests while the plan has no use for it.
  uint64_t back_per_s = 25'000'000'000;  // PCIe 4.0
};

// A place of the fleet file where an engine may run.
struct PlaceSetup {
  config::FleetEngine engine;
  uint32_t gpu = 0;           // place among the GPUs
  uint32_t place = 0;         // among that GPU's engines
  uint64_t weight_bytes = 0;  // which are loaded
  uint64_t beside_bytes = 0;  // that it takes beside the pool, weights and all
  uint64_t context_bytes = {};  // of these, that it keeps while it rests
};

// A fleet in which some engines run where a planner wants them.
struct PlanningSetup {
  config::Fleet fleet;
  std::vector<std::string> gpu_names;
  uint64_t memory_bytes = 0;  // of each GPU
  uint64_t pool_bytes = 0;
  HandTimes times;
  std::vector<PlaceSetup> places;
  // Bytes that engines which never move take beside each GPU's pool.
  std::vector<uint64_t> beside_bytes;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_LEAD_SETUP_H_
