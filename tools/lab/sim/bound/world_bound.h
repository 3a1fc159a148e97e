#ifndef TOOLS_LAB_SIM_BOUND_WORLD_BOUND_H_
#define TOOLS_LAB_SIM_BOUND_WORLD_BOUND_H_

#include <cstdint>
#include <vector>

#include "tools/lab/sim/fleet/world.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::sim {

// Upper bound on the first tokens of the trace that any policy, even one that
// knew it beforehand, could have on time with this world's engines where they
// are: attainment beyond bound / requests cannot be reached.
//
// A step that fills q ≤ chunk prompt tokens takes at least q · (per_token +
// base / chunk), so that is the least work of a prompt token; decoding, memory
// and all waits cost nothing. A prompt that alone takes longer than its SLO, or
// that its engine refuses, is never on time. GPUs that share models, directly
// or through others, are one machine as fast as all of them together, where n
// engines with slowdown f(n) do n / f(n) of one engine's work. Besides, no
// engine is faster than when it is alone; so the bound is the lesser of the
// machine's and the sum of its models'.
uint64_t ClairvoyantBound(const World& world, const workload::Trace& trace,
                          const std::vector<uint32_t>& model_of);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_BOUND_WORLD_BOUND_H_
