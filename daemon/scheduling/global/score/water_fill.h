#ifndef DAEMON_SCHEDULING_GLOBAL_SCORE_WATER_FILL_H_
#define DAEMON_SCHEDULING_GLOBAL_SCORE_WATER_FILL_H_

#include <algorithm>

#include "absl/types/span.h"
#include "daemon/scheduling/global/model/token_curve.h"

namespace fineserve::plan {

// Demand of one replica for memory that is shared out where it yields most. At
// a price of π tokens/s per byte, it takes the bytes whose slope is at least π.
// With y = 1/√π, the solution of X'(K) = π is K = rise · y − start: linear, so
// that the level at which all memory is given away is found without iterating.
struct Bucket {
  double rise = 0;
  double start = 0;
  double least = 0;  // bytes
  double most = 0;   // ≥ least

  double At(double level) const {
    return std::clamp(rise * level - start, least, most);
  }
};

// Returns the bucket of a curve that may have batches from `least` to `most`.
Bucket BucketOf(const TokenCurve& curve, double slowdown, double least_bytes,
                double most_batch);

// Returns the level at which the buckets hold `bytes` together; infinite if
// they cannot hold that much, 0 if their minimum is more. O(n log n).
double WaterLevel(absl::Span<const Bucket> buckets, double bytes);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_SCORE_WATER_FILL_H_
