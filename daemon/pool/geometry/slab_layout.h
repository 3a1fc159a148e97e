#ifndef DAEMON_POOL_GEOMETRY_SLAB_LAYOUT_H_
#define DAEMON_POOL_GEOMETRY_SLAB_LAYOUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/block_range.h"
#include "daemon/pool/geometry/format.h"
#include "daemon/pool/geometry/pool_geometry.h"

namespace fineserve::slab {

// The slabs of a pool as one format sees them (design note 0000, Memory).
//
//   view index     0        1        2        (0: the engine's scratch)
//   plane p     |--------|--------|--------|  each share: plane_bytes(), the
//   block        0  1  2  3  4  5  6  7  8    slab's granules of plane p
//                      ^^^^^ straddles a boundary: never used
//
// Block b is at b × page_bytes in every plane, whatever its slab. If the page
// size divides the share, b is the paper's id: slab × blocks per slab + local
// id (§5.2). Plain value, immutable.
class SlabLayout {
 public:
  // InvalidArgument, with a slab size that fits, if a slab has fewer granules
  // than the format has planes, or if some share could hold no block.
  static absl::StatusOr<SlabLayout> Create(const PoolGeometry& pool,
                                           const Format& format);

  const Format& format() const { return format_; }
  uint32_t granules_per_plane() const { return granules_per_plane_; }
  // C: bytes that a slab gives to each plane.
  uint64_t plane_bytes() const { return granules_per_plane_ * granule_bytes_; }

  // Returns the usable blocks of a slab. View index 0 is the scratch.
  abi::BlockRange Blocks(uint64_t view_index) const;

  // Returns the number of block ids of the whole view, including those of the
  // scratch: the engine's num_blocks.
  uint64_t ViewBlocks() const;

  // The number of usable blocks of a slab: the minimum, and the mean over a
  // long pool. If the two differ, a slab has LeastBlocks or one more.
  uint64_t LeastBlocks() const;
  double MeanBlocks() const;

  // Fractions of a slab's bytes that no block uses: granules left over after
  // each plane got its share, and blocks that straddle a boundary.
  double TailWaste() const;
  double StraddleWaste() const;
  double Waste() const { return TailWaste() + StraddleWaste(); }

 private:
  SlabLayout(const PoolGeometry& pool, const Format& format);

  Format format_;
  uint64_t granule_bytes_;
  uint32_t granules_per_slab_;
  uint32_t granules_per_plane_;
  uint32_t slab_count_;
};

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_GEOMETRY_SLAB_LAYOUT_H_
