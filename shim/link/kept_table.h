#ifndef SHIM_LINK_KEPT_TABLE_H_
#define SHIM_LINK_KEPT_TABLE_H_

#include <cstddef>

#include "shim/host/checked_descriptor.h"

namespace fineserve::shim {

// The latest daemon's slab table. This process preserves it beyond that
// daemon's death, because it names the processes that still hold the old pool.
// Readers find it by its descriptor (/proc/PID/fd). Mappings are never removed,
// not even those of earlier tables.
//
// Confined to one thread at a time (the daemon link's lock), except for Close
// in a forked child. Trivially destroyed.
class KeptTable {
 public:
  constexpr KeptTable() = default;

  // Takes ownership of `fd` and maps the whole file.
  void Keep(int fd);
  // Closes the descriptor; the mapping stays.
  void Close() { descriptor_.Close(); }

  // Null if the latest table could not be mapped.
  const void* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // False for a table that could shrink: reading it might raise SIGBUS.
  bool IsSealed() const;

 private:
  CheckedDescriptor descriptor_;
  const void* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace fineserve::shim

#endif  // SHIM_LINK_KEPT_TABLE_H_
