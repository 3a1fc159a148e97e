#ifndef BENCH_PAPER_COMPARED_SYSTEMS_ENGINES_H_
#define BENCH_PAPER_COMPARED_SYSTEMS_ENGINES_H_

#include <cstdint>

#include "bench/paper/compared_systems/scene.h"
#include "bench/paper/compared_systems/system.h"
#include "daemon/scheduling/global/model/assignment.h"
#include "tools/lab/sim/fleet/world.h"

namespace fineserve::bench {

// Measured rate of a fifth-generation link (facts of November 2026: 55.3 to
// 55.6 GB/s).
inline constexpr double kLinkBytesPerUs = 55.4e3;

// Returns the engines of a placement, each with its KV as the system shares it:
// the memory of a GPU that weights and activations leave or, with
// Parts::kLayers, that the released slab manager leaves, which subtracts 1.8
// times the weights. Omits engines of several GPUs, since the simulator keeps
// KV on one. GPUs have the scene's memory, whatever the assignment's problem
// says.
sim::World EnginesOf(const System& system, const Scene& scene,
                     const plan::Assignment& assignment);

// Returns the fitted step of a model's profile
// (daemon/scheduling/local/predict/profile_fit.h).
sched::Profile StepOf(const plan::Profile& profile);

// Returns the largest batch whose TTFT keeps the SLO, by the line through the
// nearest profiled batches (the released slo_max_batch_size, prompts of 0.8 ·
// 903 tokens); at least 1.
uint32_t ReleasedBatch(const plan::Profile& profile, double slo_s);

// Returns the released TTFT per token, which is that of batch 1, in µs.
double ReleasedUsPerToken(const plan::Profile& profile);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_ENGINES_H_
