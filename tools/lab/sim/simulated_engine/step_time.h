#ifndef TOOLS_LAB_SIM_SIMULATED_ENGINE_STEP_TIME_H_
#define TOOLS_LAB_SIM_SIMULATED_ENGINE_STEP_TIME_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "daemon/scheduling/local/predict/predictor.h"
#include "tools/lab/sim/core/agenda.h"

namespace fineserve::sim {

// Amount by which a sum of durations in µs may exceed a whole number through
// rounding alone.
inline constexpr double kRounding = 1e-6;

// Real time of a step, in µs, by the affine profile with which the scheduler
// predicts (daemon/scheduling/local/predict/predictor.h). With tensor
// parallelism over `tp` GPUs, the cost of each token is divided by `tp`, while
// the host's part is not, and the ranks exchange activations: `exchange_us` per
// step and `exchange_token_us` per token of the step.
struct StepTime {
  sched::Profile profile;  // on one GPU
  uint32_t tp = 1;
  double exchange_us = 0;
  double exchange_token_us = 0;

  // Returns the time of a step that fills q tokens of prompts and decodes n
  // sequences, if nothing slows it down.
  double Us(double q, double n) const {
    double us = profile.base_us +
                (profile.per_token_us * q + profile.per_sequence_us * n) / tp;
    if (tp > 1) us += exchange_us + exchange_token_us * (q + n);
    return us;
  }

  // Rounds up, so that no step is shorter than Us() says; at least 1.
  Micros operator()(uint64_t prefill, uint64_t decodes,
                    double slowdown = 1) const {
    const double us = slowdown * Us(static_cast<double>(prefill),
                                    static_cast<double>(decodes));
    return std::max<Micros>(1, static_cast<Micros>(std::ceil(us - kRounding)));
  }
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_SIMULATED_ENGINE_STEP_TIME_H_
