#ifndef DAEMON_SLAB_GEOMETRY_SEARCH_H_
#define DAEMON_SLAB_GEOMETRY_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/slab/format.h"
#include "daemon/slab/pool_geometry.h"

namespace fineserve::slab {

struct SearchRequest {
  uint64_t pool_bytes = 0;   // what the operator wants; rounded down to slabs
  uint64_t granularity = 0;  // the driver's, bytes
  std::vector<Format> formats;
  // Engines that hold slabs at the same time; 0: one per format.
  uint32_t engines = 0;
  uint32_t max_handles = kMaxHandles;
};

// One way to cut the pool. Fractions are of the pool's wanted bytes.
struct GeometryChoice {
  PoolGeometry geometry;
  double waste = 0;       // tail and straddling blocks, of the worst format
  double mean_waste = 0;  // the same, mean of all formats
  double remainder = 0;   // of the pool, behind the last whole slab
  // Expected loss to slabs in part use: each engine has one, half full.
  double partial = 0;

  double cost() const { return waste + remainder + partial; }
  bool exact() const { return waste == 0; }
};

// Every cut that is worth considering, in order of slab size: none has both
// larger slabs and no less waste than another. At least one; InvalidArgument
// if a format has no planes, or if no cut holds a block of every format in
// kLeastSlabs slabs.
absl::StatusOr<std::vector<GeometryChoice>> GeometryFrontier(
    const SearchRequest& request);

// The one with the least cost; of equals the smaller slabs.
const GeometryChoice& Cheapest(const std::vector<GeometryChoice>& frontier);

// Granules of the smallest slab without tail: the planes' least common
// multiple; 0 if it exceeds 64 bits or a format has no planes.
uint64_t ExactGranules(const std::vector<Format>& formats);

// Fewer slabs than this are no pool to share (heuristic).
inline constexpr uint32_t kLeastSlabs = 8;

}  // namespace fineserve::slab

#endif  // DAEMON_SLAB_GEOMETRY_SEARCH_H_
