#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_TOKEN_CURVE_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_TOKEN_CURVE_H_

#include <algorithm>

namespace fineserve::plan {

// Tokens per second that one replica generates as a function of its KV: X(b) =
// b / (c0 + cd · b) with b = K / sequence_bytes sequences running, and K on
// each of its GPUs. Concave, so that memory can be shared out by water-filling
// (water_fill.h).
struct TokenCurve {
  double c0 = 0;              // seconds of a token, alone
  double cd = 0;              // more for each sequence that runs beside it
  double sequence_bytes = 0;  // of KV on one GPU, of a mean request
  double max_batch = 0;
  double demand = 0;  // tokens/s at its target rate

  // Returns the tokens/s with `batch` sequences, when everything takes
  // `slowdown` times as long (co-tenants; 1: alone).
  double Speed(double batch, double slowdown) const {
    return batch / (slowdown * (c0 + cd * batch));
  }

  // Returns the number of sequences that give `tokens` a second, at most
  // max_batch (Little's law: λW).
  double BatchFor(double tokens, double slowdown) const {
    const double busy = tokens * slowdown * cd;
    if (busy >= 1) return max_batch;
    return std::min(max_batch, tokens * slowdown * c0 / (1 - busy));
  }

  // Returns dX/dK: the additional tokens/s for one more byte, where `batch`
  // sequences run.
  double Slope(double batch, double slowdown) const {
    const double time = c0 + cd * batch;
    return c0 / (time * time * sequence_bytes * slowdown);
  }
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_TOKEN_CURVE_H_
