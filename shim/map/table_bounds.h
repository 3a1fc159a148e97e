#ifndef SHIM_MAP_TABLE_BOUNDS_H_
#define SHIM_MAP_TABLE_BOUNDS_H_

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// True if a slab table of `table_bytes` has room for `count` entries of `each`
// bytes at `offset`.
inline bool TableHolds(size_t table_bytes, uint64_t offset, uint64_t count,
                       size_t each) {
  return offset % 8 == 0 && offset <= table_bytes &&
         count <= (table_bytes - offset) / each;
}

}  // namespace fineserve::shim

#endif  // SHIM_MAP_TABLE_BOUNDS_H_
