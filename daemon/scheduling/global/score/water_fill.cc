#include "daemon/scheduling/global/score/water_fill.h"

#include <cmath>
#include <limits>

#include "absl/container/inlined_vector.h"

namespace fineserve::plan {
namespace {

// A bucket begins to fill, or becomes full, at `level`.
struct Bend {
  double level;
  double rise;  // what this adds to the slope of all
};

}  // namespace

Bucket BucketOf(const TokenCurve& c, double slowdown, double least_bytes,
                double most_batch) {
  const double c0 = slowdown * c.c0, cd = slowdown * c.cd;
  Bucket bucket;
  bucket.rise = std::sqrt(c0 * c.sequence_bytes) / cd;
  bucket.start = c.sequence_bytes * c0 / cd;
  bucket.least = least_bytes;
  bucket.most = std::max(least_bytes, most_batch * c.sequence_bytes);
  return bucket;
}

double WaterLevel(absl::Span<const Bucket> buckets, double bytes) {
  double least = 0, most = 0;
  for (const Bucket& b : buckets) {
    least += b.least;
    most += b.most;
  }
  if (most <= bytes) return std::numeric_limits<double>::infinity();
  if (least >= bytes) return 0;
  absl::InlinedVector<Bend, 24> bends;
  for (const Bucket& b : buckets) {
    bends.push_back({(b.least + b.start) / b.rise, b.rise});
    bends.push_back({(b.most + b.start) / b.rise, -b.rise});
  }
  std::sort(bends.begin(), bends.end(),
            [](const Bend& a, const Bend& b) { return a.level < b.level; });
  double held = least, rise = 0, level = bends.front().level;
  for (const Bend& bend : bends) {
    const double gained = rise * (bend.level - level);
    if (held + gained >= bytes) break;
    held += gained;
    level = bend.level;
    rise += bend.rise;
  }
  return rise > 0 ? level + (bytes - held) / rise : level;
}

}  // namespace fineserve::plan
