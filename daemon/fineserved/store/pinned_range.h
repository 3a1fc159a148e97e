#ifndef DAEMON_FINESERVED_STORE_PINNED_RANGE_H_
#define DAEMON_FINESERVED_STORE_PINNED_RANGE_H_

#include <cstdint>

#include "daemon/fineserved/store/store_file.h"
#include "kernels/driver/driver.h"

namespace fineserve::store {

// A range of a store's file that has memory. While this object lives, it is
// mapped here and registered with the driver: copies between it and the device
// run at the link's rate (H100: 54 GB/s, where unregistered memory gives 7.5 to
// the device). If the driver refuses to register it, copies are correct but
// slower. The context that is current in the constructor must be current in the
// destructor.
class PinnedRange {
 public:
  // `call` must outlive this object.
  PinnedRange(const driver::EntryPoints& call, const StoreFile& file,
              uint64_t offset, uint64_t bytes);
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;
  ~PinnedRange();

  // Returns null if the range cannot be mapped, or the host has no memory for
  // it.
  char* base() const { return has_memory_ ? range_.base() : nullptr; }
  bool is_registered() const { return is_registered_; }

 private:
  const driver::EntryPoints& call_;
  const MappedRange range_;
  const bool has_memory_;
  const bool is_registered_;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_PINNED_RANGE_H_
