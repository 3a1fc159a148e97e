#ifndef SHIM_REDIRECT_HANDLE_TABLE_H_
#define SHIM_REDIRECT_HANDLE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/driver/cuda_types.h"
#include "shim/host/plain_mutex.h"
#include "shim/link/daemon_link.h"

namespace fineserve::shim {

// An allocation that the program made with cuMemCreate and that is backed by
// leased slabs. Plain data; `granules` (from calloc) belongs to the entry.
struct VirtualAllocation {
  // The handle that the program holds, which is the driver's own handle of the
  // first granule. It is not released while the entry lives, so no other
  // allocation of the driver can get the same value.
  driver::CUmemGenericAllocationHandle handle = 0;
  driver::CUmemGenericAllocationHandle* granules = nullptr;
  uint32_t granule_count = 0;  // those that back `bytes`
  uint64_t bytes = 0;
  driver::CUmemAllocationProp prop = {};  // as the program requested
  Lease lease;
  uint32_t references = 0;  // that the program holds to the handle
  uint32_t mappings = 0;    // that the program has made
  // True if the lease must not be returned, because we could not wait for work
  // that may still use the slabs.
  bool keep_lease = false;
};

// The live allocations, by handle. An allocation lives until it has neither
// references nor mappings; a handle without references is no longer the
// program's. Thread-safe; constant-initialised, trivially destroyed.
class HandleTable {
 public:
  // PyTorch's expandable segments make one handle per 2 or 20 MiB.
  static constexpr size_t kCapacity = 4096;

  constexpr HandleTable() = default;

  // Takes no lock: this is the whole cost for a program that holds none of our
  // handles.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // False if the table is full.
  bool Insert(const VirtualAllocation& allocation);

  // Copies an allocation if the program holds its handle.
  bool Find(driver::CUmemGenericAllocationHandle handle,
            VirtualAllocation* out);

  // Adds a mapping and copies the allocation, which stays valid until Unpin.
  // False for a handle that the program does not hold.
  bool Pin(driver::CUmemGenericAllocationHandle handle, VirtualAllocation* out);

  // Adds a reference to a handle that has references or mappings.
  bool Retain(driver::CUmemGenericAllocationHandle handle);

  // Unpin removes a mapping, Release a reference. If that was the last of both,
  // they move the allocation to `last` and return true.
  bool Unpin(driver::CUmemGenericAllocationHandle handle, bool keep_lease,
             VirtualAllocation* last);
  bool Release(driver::CUmemGenericAllocationHandle handle,
               VirtualAllocation* last);

 private:
  VirtualAllocation* Entry(driver::CUmemGenericAllocationHandle handle)
      FINESERVE_REQUIRES(mutex_);
  bool TakeIfLast(VirtualAllocation* entry, VirtualAllocation* last)
      FINESERVE_REQUIRES(mutex_);

  Mutex mutex_;
  std::atomic<size_t> count_{0};
  VirtualAllocation entries_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_HANDLE_TABLE_H_
