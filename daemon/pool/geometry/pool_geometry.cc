#include "daemon/pool/geometry/pool_geometry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"
#include "kernels/driver/rounding.h"

namespace fineserve::slab {
namespace {

// Returns the number of handles of a pool whose granules have this size, with
// one granule per plane and slab.
uint64_t HandlesFor(const GeometryRequest& r, uint64_t granule_bytes) {
  return r.pool_bytes / (granule_bytes * r.planes) * r.planes;
}

uint64_t ChooseGranule(const GeometryRequest& r) {
  const uint64_t least =
      RoundUp(DivideUp(r.pool_bytes, r.max_handles), r.granularity);
  // Rounding down to whole slabs may allow one step less than `least`.
  uint64_t granule = std::max(least, 2 * r.granularity) - r.granularity;
  while (HandlesFor(r, granule) > r.max_handles) granule += r.granularity;
  if (r.planes > 1) return granule;
  return std::max(granule, RoundUp(kDefaultSlabBytes, r.granularity));
}

}  // namespace

absl::StatusOr<PoolGeometry> ChooseGeometry(const GeometryRequest& r) {
  if (r.planes == 0 || r.granularity == 0) {
    return absl::InvalidArgumentError("planes and granularity must be ≥ 1");
  }
  const uint64_t step = r.granularity * r.planes;
  if (r.slab_bytes % step != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slab size ", abi::SizeText(r.slab_bytes),
                     " is not a multiple of ", abi::SizeText(step), " (",
                     r.planes, " planes × ", abi::SizeText(r.granularity),
                     "); use ", abi::SizeText(RoundUp(r.slab_bytes, step))));
  }
  PoolGeometry g;
  g.granule_bytes =
      r.slab_bytes != 0 ? r.slab_bytes / r.planes : ChooseGranule(r);
  g.granules_per_slab = r.planes;
  const uint64_t slabs = r.pool_bytes / g.slab_bytes();
  if (slabs == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pool of ", abi::SizeText(r.pool_bytes),
                     " holds no slab; the smallest slab is ",
                     abi::SizeText(g.slab_bytes())));
  }
  if (slabs * r.planes > r.max_handles) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slabs of ", abi::SizeText(g.slab_bytes()), " need ", slabs * r.planes,
        " handles, more than the limit of ", r.max_handles, "; use slabs of ",
        abi::SizeText(ChooseGranule(r) * r.planes)));
  }
  g.slab_count = static_cast<uint32_t>(slabs);
  return g;
}

std::string Describe(const PoolGeometry& g) {
  return absl::StrCat(
      g.slab_count, " slabs of ", abi::SizeText(g.slab_bytes()), " (",
      g.granules_per_slab, " × ", abi::SizeText(g.granule_bytes), "), ",
      abi::SizeText(g.pool_bytes()), " in ", g.granule_count(), " handles");
}

std::string Describe(const PoolGeometry& geometry, uint32_t present) {
  PoolGeometry now = geometry;
  now.slab_count = present;
  if (present == geometry.slab_count) return Describe(now);
  return absl::StrCat(Describe(now), ", may grow to ", geometry.slab_count,
                      " slabs");
}

}  // namespace fineserve::slab
