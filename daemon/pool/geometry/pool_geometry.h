#ifndef DAEMON_POOL_GEOMETRY_POOL_GEOMETRY_H_
#define DAEMON_POOL_GEOMETRY_POOL_GEOMETRY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace fineserve::slab {

// The most handles that one GPU's pool may have. Creating a handle takes 193 µs
// on an A100 (kvcached), so 8,192 take 1.6 s; exporting and importing them cost
// about as much.
inline constexpr uint32_t kMaxHandles = 8192;

// How a pool is cut: slab_count slabs, each of granules_per_slab granules of
// granule_bytes. Plain value.
struct PoolGeometry {
  uint64_t granule_bytes = 0;
  uint32_t granules_per_slab = 0;
  uint32_t slab_count = 0;

  uint64_t slab_bytes() const { return granule_bytes * granules_per_slab; }
  uint32_t granule_count() const { return granules_per_slab * slab_count; }
  uint64_t pool_bytes() const { return slab_bytes() * slab_count; }
};

struct GeometryRequest {
  uint64_t pool_bytes = 0;   // as requested; rounded down to whole slabs
  uint32_t planes = 1;       // over which a slab is spread
  uint64_t slab_bytes = 0;   // 0: choose
  uint64_t granularity = 0;  // the driver's, bytes
  uint32_t max_handles = kMaxHandles;
};

// Cuts a pool. A mapping starts at a handle's first byte, so each plane's share
// of a slab is a separate granule; with one plane, a slab is one granule. The
// share is the smallest multiple of the granularity that stays within
// max_handles; with one plane, it is at least kDefaultSlabBytes.
// InvalidArgument, with the fix, if slab_bytes cannot be cut that way or not
// even one slab fits.
absl::StatusOr<PoolGeometry> ChooseGeometry(const GeometryRequest& request);

// Heuristic: a layer's KV tensor has about 100 MiB, so whole-slab leases waste
// little, and 16 GiB need only 512 handles.
inline constexpr uint64_t kDefaultSlabBytes = 32ull << 20;

// Returns one line for people: "512 slabs of 32 MiB (1 × 32 MiB), 16 GiB in 512
// handles".
std::string Describe(const PoolGeometry& geometry);
// Returns the same for a pool in which `present` slabs have memory: "…, 5 GiB
// in 160 handles, may grow to 512 slabs".
std::string Describe(const PoolGeometry& geometry, uint32_t present);

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_GEOMETRY_POOL_GEOMETRY_H_
