#ifndef SHIM_REDIRECT_PEER_ACCESS_H_
#define SHIM_REDIRECT_PEER_ACCESS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/driver/entry_points.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/map/range_table.h"

namespace fineserve::shim {

// Gives other devices access to redirected memory. A driver's own allocations
// are open to the devices whose contexts have enabled access to the context
// that they were made in, or that their memory pool has been opened to. Mapped
// memory is open to the devices that are named for each mapping, so this class
// makes it follow the same rules. Tensors of a view stay closed.
//
// Thread-safe; no driver call is made under the lock. Constant-initialised,
// trivially destroyed.
class PeerAccess {
 public:
  explicit constexpr PeerAccess(RangeTable* ranges) : ranges_(ranges) {}

  // Gives access to a range that has just been inserted into the table to the
  // devices to which its context or pool is open. After an error at least one
  // device has no access.
  driver::CUresult Open(const Driver& real, const Redirection& range);

  // Called after the driver's success: the current context may now, or may no
  // longer, access memory that was allocated in `peer`.
  void Enable(const Driver& real, driver::CUcontext peer);
  void Disable(const Driver& real, driver::CUcontext peer);
  // Called after the pool was given this access.
  void SetPool(const Driver& real, driver::CUmemoryPool pool,
               const driver::CUmemAccessDesc* access, size_t count);
  // Called after the context was destroyed, since another one may get its
  // handle.
  void Forget(driver::CUcontext context);
  // True if access to some context was ever enabled. Takes no lock.
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

 private:
  // Devices that may access the memory that was allocated in a context.
  struct Entry {
    driver::CUcontext context = nullptr;  // null if the place is free
    uint64_t devices = 0;                 // one bit each
  };
  static constexpr size_t kCapacity = 64;
  static constexpr int kMostDevices = 64;

  // Opens or closes the current context's access to the memory allocated in
  // `peer`.
  void SetContext(const Driver& real, driver::CUcontext peer, bool opens);
  void Set(driver::CUcontext context, driver::CUdevice device, bool open);
  uint64_t DevicesOf(driver::CUcontext context);
  template <typename Concerns>
  void SetRanges(const Driver& real, const driver::CUmemAccessDesc& access,
                 Concerns concerns);

  RangeTable* const ranges_;
  std::atomic<bool> in_use_{false};
  Mutex mutex_;
  Entry entries_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_PEER_ACCESS_H_
