#ifndef TOOLS_LAB_SIM_OVERLOAD_BATCH_COST_H_
#define TOOLS_LAB_SIM_OVERLOAD_BATCH_COST_H_

#include <cstdint>
#include <vector>

#include "tools/lab/sim/overload/step_cost.h"

// KunServe's lookahead batch formulation (its section 4.3).

namespace fineserve::sim {

// A chunk of a request: `tokens` tokens of a prompt after `prefix`, or one
// decoded token.
struct LookaheadChunk {
  double prefix = 0;
  double tokens = 1;
};

// Eqs. 1 to 3, in µs: a chunk costs α (p·c + (c² + c)/2) + β c + γ. A batch
// costs the sum, less λ for each chunk after the first.
struct BatchCost {
  double alpha = 0, beta = 0, gamma = 0, lambda = 0;

  double Us(double pairs, double tokens, double chunks) const {
    return alpha * pairs + beta * tokens + gamma * chunks -
           lambda * (chunks - 1);
  }
  double Us(const std::vector<LookaheadChunk>& batch) const;
};

struct CostSample {
  double pairs, tokens, chunks, us;
};
// Fits by least squares of relative errors. Needs four different samples.
BatchCost FitBatchCost(const std::vector<CostSample>& samples);
// Fits the same to random batches, timed by `truth`.
BatchCost FitBatchCost(const StepCost& truth, uint64_t seed);

// Figure 11: splits a batch into two halves of equal cost, and splits the
// halves again, until one has at most `least_tokens` tokens.
std::vector<std::vector<LookaheadChunk>> Balance(
    const BatchCost& cost, const std::vector<LookaheadChunk>& batch,
    double least_tokens);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_OVERLOAD_BATCH_COST_H_
