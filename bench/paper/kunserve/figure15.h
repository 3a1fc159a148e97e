#ifndef BENCH_PAPER_KUNSERVE_FIGURE15_H_
#define BENCH_PAPER_KUNSERVE_FIGURE15_H_

#include <vector>

namespace fineserve::bench {

// A chunk of `tokens` after `prefix`, its measured time, and the error in
// percent of each model, with coefficients that were fitted to all other
// chunks.
struct CostError {
  double prefix = 0, tokens = 0, us = 0;
  double off = 0;            // Eqs. 1 to 3
  double off_tokens = 0;     // by the number of tokens alone
  double off_neglected = 0;  // the same, fitted to everything but attention
};
std::vector<CostError> CostErrors();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_KUNSERVE_FIGURE15_H_
