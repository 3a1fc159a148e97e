#include "daemon/pool/geometry/slab_layout.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"
#include "kernels/driver/rounding.h"

namespace fineserve::slab {
namespace {

// The smallest granule of every driver we know, in bytes.
constexpr uint64_t kLeastGranule = uint64_t{2} << 20;

// Returns the number of shares after which block and slab boundaries coincide
// again.
uint64_t Period(uint64_t plane_bytes, uint64_t page_bytes) {
  return page_bytes / std::gcd(plane_bytes, page_bytes);
}

// Returns the least number of whole blocks in a share, wherever the share
// begins.
uint64_t Least(uint64_t plane_bytes, uint64_t page_bytes) {
  const uint64_t whole = plane_bytes / page_bytes;
  if (Period(plane_bytes, page_bytes) == 1) return whole;
  // In the worst case page - gcd bytes at the front are unused.
  const uint64_t lost = page_bytes - std::gcd(plane_bytes, page_bytes);
  return plane_bytes < lost ? 0 : (plane_bytes - lost) / page_bytes;
}

// Bytes of a slab that fits this format: the pool's own if other granules are
// enough.
uint64_t FittingSlab(const PoolGeometry& pool, const Format& format) {
  const uint64_t granule = std::min(kLeastGranule, pool.granule_bytes);
  const uint64_t step = granule * format.planes;
  const uint64_t slab = pool.slab_bytes();
  if (slab % step == 0 && Least(slab / format.planes, format.page_bytes) > 0) {
    return slab;
  }
  if (Least(granule, format.page_bytes) > 0) return step;
  // A share of two pages holds a whole block wherever it begins.
  return DivideUp(2 * format.page_bytes, granule) * step;
}

}  // namespace

SlabLayout::SlabLayout(const PoolGeometry& pool, const Format& format)
    : format_(format),
      granule_bytes_(pool.granule_bytes),
      granules_per_slab_(pool.granules_per_slab),
      granules_per_plane_(pool.granules_per_slab / format.planes),
      slab_count_(pool.slab_count) {}

absl::StatusOr<SlabLayout> SlabLayout::Create(const PoolGeometry& pool,
                                              const Format& format) {
  if (format.planes == 0 || format.page_bytes == 0 ||
      format.block_tokens == 0 || pool.granule_bytes == 0) {
    return absl::InvalidArgumentError(
        "a format needs planes, page bytes and tokens, a pool needs granule "
        "bytes");
  }
  const SlabLayout layout(pool, format);
  if (layout.granules_per_plane_ > 0 && layout.LeastBlocks() > 0) {
    return layout;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "slabs of ", abi::SizeText(pool.slab_bytes()), " (",
      pool.granules_per_slab, " × ", abi::SizeText(pool.granule_bytes),
      ") are too small for a block of ", format.planes, " planes × ",
      format.page_bytes, " bytes; use slabs of ",
      abi::SizeText(FittingSlab(pool, format)), " in ", format.planes,
      " planes (fineserved --slab, --planes)"));
}

abi::BlockRange SlabLayout::Blocks(uint64_t view_index) const {
  return abi::BlocksOfView(view_index, plane_bytes(), format_.page_bytes);
}

uint64_t SlabLayout::ViewBlocks() const {
  return (uint64_t{slab_count_} + 1) * plane_bytes() / format_.page_bytes;
}

uint64_t SlabLayout::LeastBlocks() const {
  return Least(plane_bytes(), format_.page_bytes);
}

double SlabLayout::MeanBlocks() const {
  // All but one of `period` boundaries are inside a block.
  const double period =
      static_cast<double>(Period(plane_bytes(), format_.page_bytes));
  return static_cast<double>(plane_bytes()) /
             static_cast<double>(format_.page_bytes) -
         (period - 1) / period;
}

double SlabLayout::TailWaste() const {
  return static_cast<double>(granules_per_slab_ % format_.planes) /
         granules_per_slab_;
}

double SlabLayout::StraddleWaste() const {
  const double slab_bytes =
      static_cast<double>(granules_per_slab_ * granule_bytes_);
  const double block_bytes = static_cast<double>(format_.block_bytes());
  return 1 - TailWaste() - MeanBlocks() * block_bytes / slab_bytes;
}

}  // namespace fineserve::slab
