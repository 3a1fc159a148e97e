#ifndef SHIM_REDIRECT_CREATED_MEMORY_H_
#define SHIM_REDIRECT_CREATED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/driver/cuda_types.h"
#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// The device memory, by handle, that the program has made with cuMemCreate and
// that the driver backs. An engine that can sleep gives this memory up when it
// sleeps (PyTorch's and vLLM's allocators then release the handles). A handle
// that was retained counts as released at the first cuMemRelease. Thread-safe.
// Constant-initialised, trivially destroyed.
class CreatedMemory {
 public:
  // With allocations of 20 MiB each, as PyTorch makes them, this is more than
  // any device has.
  static constexpr size_t kCapacity = 16384;

  constexpr CreatedMemory() = default;

  // Takes no lock.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // Adds a handle. False if the table is full; then the memory is not counted.
  bool Add(driver::CUmemGenericAllocationHandle handle, uint64_t bytes);
  // Forgets the handle and returns its bytes; 0 if it is not known.
  uint64_t Remove(driver::CUmemGenericAllocationHandle handle);

 private:
  struct Entry {
    driver::CUmemGenericAllocationHandle handle;
    uint64_t bytes;  // 0: no entry
  };

  static size_t PlaceOf(driver::CUmemGenericAllocationHandle handle);
  size_t Find(driver::CUmemGenericAllocationHandle handle) const
      FINESERVE_REQUIRES(mutex_);
  void CloseGap(size_t gap) FINESERVE_REQUIRES(mutex_);

  Mutex mutex_;
  std::atomic<size_t> count_{0};
  // A hash table with linear probing.
  Entry entries_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_CREATED_MEMORY_H_
