#include "shim/view/view_format.h"

#include <algorithm>
#include <numeric>

#include "daemon/contract/abi/block_range.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using abi::BlocksOfView;

static_assert(FS_KV_VIEW == static_cast<int>(abi::ViewMode::kView));
static_assert(FS_KV_GUARDED == static_cast<int>(abi::ViewMode::kGuarded));
static_assert(std::size(fs_kv_format{}.groups) == abi::kKvGroupKinds);
static_assert(FS_KV_STRICT == static_cast<int>(abi::ViewMode::kStrict));

// Far more planes than any model has, but within the range table's capacity.
constexpr uint32_t kMostPlanes = 4096;
// This bound on a plane's size bounds every product below.
constexpr uint64_t kMostPlaneBytes = uint64_t{1} << 48;

abi::KvShape ShapeOf(const fs_kv_format& f) {
  abi::KvShape shape = {};
  for (int i = 0; i < abi::kKvGroupKinds; ++i) {
    const fs_kv_groups& g = f.groups[i];
    shape.groups[i] = {g.count, g.block_tokens, g.window_tokens};
  }
  shape.states = f.states;
  shape.filling_tokens = f.filling_tokens;
  shape.answering_tokens = f.answering_tokens;
  return shape;
}

// Returns the number of slabs that fit in a plane of `s.blocks` blocks after
// index 0.
uint64_t SlabsThatFit(const ViewShape& s, uint64_t slab_count) {
  // The last index may extend beyond the last block.
  uint64_t indices = ((s.blocks + 1) * s.page_bytes - 1) / s.plane_bytes;
  if (s.planes_per_allocation > 1) {
    indices = std::min(indices, s.stride() / s.plane_bytes);
  }
  return indices == 0 ? 0 : std::min(indices - 1, slab_count);
}

}  // namespace

int CheckFormat(const fs_kv_format& f) {
  if (f.struct_bytes != sizeof(f)) {
    return KvError(FS_INVALID, "format.struct_bytes is %u, not %zu",
                   f.struct_bytes, sizeof(f));
  }
  if (f.mode < FS_KV_VIEW || f.mode > FS_KV_STRICT) {
    return KvError(
        FS_INVALID,
        "format.mode is %u, not one of FS_KV_VIEW, FS_KV_GUARDED, FS_KV_STRICT",
        f.mode);
  }
  const bool is_known = f.flags == FS_KV_RANK || f.flags == FS_KV_REGISTERED;
  if (f.flags != 0 && (!is_known || f.mode != FS_KV_VIEW)) {
    return KvError(FS_INVALID,
                   "format.flags is %u, not 0, or FS_KV_RANK or "
                   "FS_KV_REGISTERED with FS_KV_VIEW",
                   f.flags);
  }
  if (f.planes == 0 || f.planes > kMostPlanes) {
    return KvError(FS_INVALID, "format.planes is %u, not 1 to %u", f.planes,
                   kMostPlanes);
  }
  if (f.planes_per_allocation == 0 || f.planes % f.planes_per_allocation != 0) {
    return KvError(
        FS_INVALID,
        "format.planes_per_allocation is %u, which does not divide %u planes",
        f.planes_per_allocation, f.planes);
  }
  if (f.page_bytes == 0 || f.page_bytes > kMostPlaneBytes) {
    return KvError(FS_INVALID, "format.page_bytes is %lu, not 1 to 2^48",
                   f.page_bytes);
  }
  if (f.blocks > kMostPlaneBytes / f.page_bytes) {
    return KvError(FS_INVALID, "%lu blocks of %lu bytes are too many", f.blocks,
                   f.page_bytes);
  }
  if (f.reserved != 0 || !abi::IsValid(ShapeOf(f))) {
    return KvError(FS_INVALID,
                   "format.groups, format.states: no group's block_tokens may "
                   "be 0, nor a count above %u; format.reserved must be 0",
                   abi::kMostKvGroups);
  }
  return FS_OK;
}

abi::ViewRequest RequestFor(const fs_kv_format& f) {
  auto request = abi::MakeMessage<abi::ViewRequest>(0);
  request.mode = static_cast<abi::ViewMode>(f.mode);
  request.planes = f.planes;
  request.page_bytes = f.page_bytes;
  request.block_tokens = f.block_tokens;
  request.floor_blocks = f.floor_blocks;
  request.cap_blocks = f.cap_blocks;
  request.flags = (f.flags == FS_KV_RANK ? abi::kViewOfGroup : 0) |
                  (f.flags == FS_KV_REGISTERED ? abi::kViewIsRegistered : 0);
  request.shape = ShapeOf(f);
  return request;
}

int ShapeFor(const fs_kv_format& format, const ViewGrant& grant,
             uint64_t granularity, ViewShape* out) {
  const abi::ViewAnswer& answer = grant.answer;
  ViewShape s;
  s.mode = static_cast<abi::ViewMode>(format.mode);
  s.planes = format.planes;
  s.planes_per_allocation = format.planes_per_allocation;
  s.page_bytes = format.page_bytes;
  s.plane_bytes = answer.plane_bytes;
  s.granule_bytes = grant.granule_bytes;
  s.granules_per_plane = answer.granules_per_plane;
  s.granules_per_slab = grant.granules_per_slab;
  s.epoch = grant.epoch;
  s.granularity = granularity;
  const uint64_t slabs = answer.slab_count;
  if (granularity == 0 || s.granule_bytes % granularity != 0 ||
      s.plane_bytes > kMostPlaneBytes / (slabs + 1) ||
      slabs > UINT32_MAX / s.granules_per_slab) {
    return KvError(FS_REFUSED,
                   "the daemon's pool does not suit this driver: its granules "
                   "are not a multiple of its granularity, or it is too large");
  }

  s.blocks = format.blocks != 0 ? format.blocks
                                : (slabs + 1) * s.plane_bytes / s.page_bytes;
  if (s.planes_per_allocation > 1) {
    const uint64_t step = granularity / std::gcd(granularity, s.page_bytes);
    if (format.blocks == 0) s.blocks -= s.blocks % step;
    if (s.blocks % step != 0) {
      return KvError(FS_INVALID,
                     "with %u planes per allocation, format.blocks must be a "
                     "multiple of %lu",
                     s.planes_per_allocation, step);
    }
  }
  const uint64_t fit = SlabsThatFit(s, slabs);
  const uint64_t floor = std::max(answer.floor_slabs, uint32_t{1});
  if (fit < floor) {
    const uint64_t needed =
        ((floor + 1) * s.plane_bytes - 1) / s.page_bytes + 1;
    return KvError(FS_INVALID,
                   "format.blocks is %lu, but the floor of %lu slabs takes %lu",
                   s.blocks, floor, needed);
  }
  s.slabs = static_cast<uint32_t>(fit);
  if (BlocksOfView(s.slabs, s.plane_bytes, s.page_bytes).end > UINT32_MAX) {
    return KvError(FS_INVALID,
                   "pages of %lu bytes give the pool more block ids than 32 "
                   "bits hold",
                   s.page_bytes);
  }
  *out = s;
  return FS_OK;
}

uint64_t LeastBlocks(const ViewShape& s) {
  uint64_t least = UINT64_MAX;
  for (uint32_t v = 1; v <= s.slabs; ++v) {
    least =
        std::min(least, BlocksOfView(v, s.plane_bytes, s.page_bytes).size());
  }
  return least;
}

}  // namespace fineserve::shim
