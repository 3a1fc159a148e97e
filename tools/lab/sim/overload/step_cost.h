#ifndef TOOLS_LAB_SIM_OVERLOAD_STEP_COST_H_
#define TOOLS_LAB_SIM_OVERLOAD_STEP_COST_H_

#include <cstddef>
#include <vector>

namespace fineserve::sim {

// Sums over the chunks of a step.
struct StepLoad {
  double tokens = 0;
  double pairs = 0;    // of a prompt's token and one at or before it
  double context = 0;  // tokens that decoding sequences attend to
  double chunks = 0;

  void AddPrompt(double prefix, double more) {
    tokens += more;
    pairs += prefix * more + (more * more + more) / 2;
    ++chunks;
  }
  void AddDecode(double length) {
    ++tokens;
    context += length;
    ++chunks;
  }
};

// Time of a step of a whole model, in µs, computed from measured kernels:
// attention from pairs and contexts, everything else from the tokens (linear
// between the points).
struct StepCost {
  struct Point {
    double tokens, us;
  };
  std::vector<Point> work;  // in the order of tokens, two at least
  double pair_us = 0;
  double context_us = 0;

  double WorkUs(double tokens) const {
    size_t i = 1;
    while (i + 1 < work.size() && work[i].tokens < tokens) ++i;
    const Point &a = work[i - 1], &b = work[i];
    return a.us + (tokens - a.tokens) * (b.us - a.us) / (b.tokens - a.tokens);
  }
  double Us(const StepLoad& load) const {
    return WorkUs(load.tokens) + pair_us * load.pairs +
           context_us * load.context;
  }
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_OVERLOAD_STEP_COST_H_
