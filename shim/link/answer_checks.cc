#include "shim/link/answer_checks.h"

namespace fineserve::shim {

bool IsUsable(const abi::Welcome& w) {
  uint64_t slab_bytes;
  return w.granule_bytes > 0 && w.granules_per_slab > 0 && w.engine_id != 0 &&
         w.declared_size_count <= abi::kDeclaredSizeCapacity &&
         w.rule_count <= abi::kRuleCapacity &&
         !__builtin_mul_overflow(w.granule_bytes, w.granules_per_slab,
                                 &slab_bytes);
}

bool IsUsable(const abi::ViewAnswer& a, const abi::ViewRequest& request,
              const abi::Welcome& pool) {
  return a.granules_per_plane > 0 &&
         uint64_t{a.granules_per_plane} * request.planes <=
             pool.granules_per_slab &&
         a.plane_bytes == a.granules_per_plane * pool.granule_bytes &&
         a.plane_bytes >= request.page_bytes && a.slab_count > 0 &&
         a.floor_slabs <= a.slab_count && a.cap_slabs <= a.slab_count;
}

bool IsUsable(const abi::RunPoolAnswer& a) {
  uint64_t end;
  return a.page_bytes > 0 && a.plane_bytes >= a.page_bytes && a.slabs > 0 &&
         a.slabs <= a.slab_count && a.floor_slabs <= a.slabs &&
         a.cap_slabs <= a.slabs &&
         !__builtin_mul_overflow(a.plane_bytes, uint64_t{a.slabs} + 1, &end);
}

}  // namespace fineserve::shim
