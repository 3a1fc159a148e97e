#ifndef SHIM_LINK_KEPT_TABLE_H_
#define SHIM_LINK_KEPT_TABLE_H_

#include <cstddef>

#include "shim/host/checked_descriptor.h"

namespace fineserve::shim {

// The latest daemon's slab table, held so that this process carries it over
// that daemon's death: the descriptor is how others find it (/proc/PID/fd), and
// the mappings of all tables are kept for ever, since they name who holds the
// old pool after its daemon has gone.
//
// One thread at a time (the daemon link's lock), but for Close in a forked
// child. Trivially destroyed.
class KeptTable {
 public:
  constexpr KeptTable() = default;

  // Takes ownership of `fd` and maps what it names, as a whole.
  void Keep(int fd);
  // Closes the descriptor; mappings stay.
  void Close() { descriptor_.Close(); }

  // Null if the latest table could not be mapped.
  const void* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // False for a table that could shrink: reading it might end us with SIGBUS.
  bool IsSealed() const;

 private:
  CheckedDescriptor descriptor_;
  const void* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace fineserve::shim

#endif  // SHIM_LINK_KEPT_TABLE_H_
