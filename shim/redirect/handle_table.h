#ifndef SHIM_REDIRECT_HANDLE_TABLE_H_
#define SHIM_REDIRECT_HANDLE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/driver/cuda_types.h"
#include "shim/host/plain_mutex.h"
#include "shim/link/daemon_link.h"

namespace fineserve::shim {

// An allocation that the program made with cuMemCreate and that leased slabs
// stand in for. Plain data; `granules` (malloc) goes with the entry.
struct VirtualAllocation {
  // What the program holds: the driver's own handle of the first granule. It
  // is not released while the entry lives, so no other allocation of the
  // driver's can have the same value.
  driver::CUmemGenericAllocationHandle handle = 0;
  driver::CUmemGenericAllocationHandle* granules = nullptr;
  uint32_t granule_count = 0;  // those that back `bytes`
  uint64_t bytes = 0;
  driver::CUmemAllocationProp prop = {};  // as the program asked
  Lease lease;
  uint32_t references = 0;  // the program's, to the handle
  uint32_t mappings = 0;
  // Its slabs must not go back: work that may still use them could not be
  // waited for.
  bool keep_lease = false;
};

// The living ones, by handle. An entry lives until it has neither references
// nor mappings; a handle without references is unknown to the program. Thread-
// safe; constant-initialised, trivially destroyed.
class HandleTable {
 public:
  // Expandable segments make one handle per 2 or 20 MiB.
  static constexpr size_t kCapacity = 4096;

  constexpr HandleTable() = default;

  // Takes no lock: a program that holds none of our handles pays this only.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // False if the table is full.
  bool Insert(const VirtualAllocation& allocation);

  // Copies an allocation that the program knows.
  bool Find(driver::CUmemGenericAllocationHandle handle,
            VirtualAllocation* out);

  // One more mapping; `out` stays valid until Unpin. False for an unknown
  // handle.
  bool Pin(driver::CUmemGenericAllocationHandle handle, VirtualAllocation* out);

  // One more reference. `handle` may have none left as long as it is mapped.
  bool Retain(driver::CUmemGenericAllocationHandle handle);

  // Each takes one back, and the entry out (to `last`) if it was the last:
  // then the result is true.
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
