#ifndef TOOLS_LAB_SIM_BOUND_NEXT_REQUEST_H_
#define TOOLS_LAB_SIM_BOUND_NEXT_REQUEST_H_

#include <cstdint>
#include <vector>

#include "tools/lab/sim/fleet/world.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::sim {

// Tells all GPUs whose engines leave when the trace's next request for each of
// their models comes (EvictionSetup::next_request). This gives a yardstick for
// policies that have to guess it. It is no upper bound on attainment: which
// engine of which size should leave is a harder question than whose request
// comes last. `model_of` as in Run; the world has no planner.
void TellNextRequests(const workload::Trace& trace,
                      const std::vector<uint32_t>& model_of, World* world);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_BOUND_NEXT_REQUEST_H_
