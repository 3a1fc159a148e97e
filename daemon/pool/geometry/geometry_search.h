#ifndef DAEMON_POOL_GEOMETRY_GEOMETRY_SEARCH_H_
#define DAEMON_POOL_GEOMETRY_GEOMETRY_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/pool/geometry/format.h"
#include "daemon/pool/geometry/pool_geometry.h"

namespace fineserve::slab {

struct SearchRequest {
  uint64_t pool_bytes = 0;   // as requested; rounded down to whole slabs
  uint64_t granularity = 0;  // the driver's, bytes
  std::vector<Format> formats;
  // Engines that hold slabs at the same time; 0: one per format.
  uint32_t engines = 0;
  uint32_t max_handles = kMaxHandles;
};

// One way to cut the pool. Fractions are of the requested pool bytes.
struct GeometryChoice {
  PoolGeometry geometry;
  double waste = 0;       // tail and straddling blocks, of the worst format
  double mean_waste = 0;  // the same, mean of all formats
  double remainder = 0;   // of the pool, after the last whole slab
  // Expected loss in partly used slabs, assuming that each engine has one that
  // is half full.
  double partial = 0;

  double cost() const { return waste + remainder + partial; }
  bool exact() const { return waste == 0; }
};

// Returns every cut that is worth considering, in order of slab size: a larger
// slab is listed only if it wastes less. Returns at least one cut, or
// InvalidArgument if a format has no planes, or if no cut into kLeastSlabs
// slabs holds a block of every format.
absl::StatusOr<std::vector<GeometryChoice>> GeometryFrontier(
    const SearchRequest& request);

// Returns the choice with the least cost; if costs are equal, the one with
// smaller slabs.
const GeometryChoice& Cheapest(const std::vector<GeometryChoice>& frontier);

// Returns the number of granules of the smallest slab that leaves no granule
// unused: the least common multiple of the planes. Returns 0 if it exceeds 64
// bits or a format has no planes.
uint64_t ExactGranules(const std::vector<Format>& formats);

// With fewer slabs there is too little to share. Heuristic.
inline constexpr uint32_t kLeastSlabs = 8;

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_GEOMETRY_GEOMETRY_SEARCH_H_
