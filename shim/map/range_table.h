#ifndef SHIM_MAP_RANGE_TABLE_H_
#define SHIM_MAP_RANGE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/driver/cuda_types.h"
#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// One redirected allocation: a virtual address range that is mapped to leased
// slabs.
struct Redirection {
  driver::CUdeviceptr base = 0;
  uint64_t reserved_bytes = 0;  // whole slabs
  uint64_t asked_bytes = 0;     // what the program asked for
  uint64_t epoch = 0;           // of the daemon that leased the slabs
  uint32_t lease = 0;
  driver::CUdevice device = 0;          // of a mapping of the program's own
  driver::CUcontext context = nullptr;  // current when it was mapped
  driver::CUmemoryPool pool = nullptr;  // of memory in stream order
  // The mapped handle, if this is a mapping that the program made itself
  // (redirect/virtual_memory.h); else 0.
  driver::CUmemGenericAllocationHandle handle = 0;
  // True for a tensor of the engine's view (view_mapping.h), whose lease is 0.
  bool is_view = false;
  // True for a resident allocation (weights/resident_memory.h), whose lease is
  // 0.
  bool is_resident = false;
  // True for memory of another process (redirect/opened_memory.h), whose lease
  // is 0.
  bool is_opened = false;
  bool is_kv() const { return !is_resident && !is_opened; }
};

// The redirected allocations of this process, sorted by base; ranges do not
// overlap. Thread-safe. MayHold takes no lock; it is the whole cost of a
// cuMemFree of other memory. A program gets an address only after Insert, so
// its own synchronisation makes the bounds visible to the thread that frees it.
//
// Invariant: every range is within [low, high). The capacity is fixed so that
// nothing is allocated under the lock; an engine makes one range per KV tensor,
// some hundreds in all.
class RangeTable {
 public:
  static constexpr size_t kCapacity = 4096;
  enum class Found {
    kNothing,  // not ours
    kInside,   // ours, but not a base: a driver would refuse to free it
    kBase,
  };

  constexpr RangeTable() = default;

  bool MayHold(driver::CUdeviceptr address) const {
    return address >= low_.load(std::memory_order_relaxed) &&
           address < high_.load(std::memory_order_relaxed);
  }

  bool empty() const {
    return high_.load(std::memory_order_relaxed) <=
           low_.load(std::memory_order_relaxed);
  }

  // True if a range is KV.
  bool HoldsKv();

  // False if the table is full.
  bool Insert(const Redirection& range);

  // Copies the range that holds `address`. False if none does.
  bool Find(driver::CUdeviceptr address, Redirection* out);

  // Copies the first range that overlaps [address, address + bytes). False if
  // none does.
  bool FirstOverlap(driver::CUdeviceptr address, uint64_t bytes,
                    Redirection* out);

  // Removes the range that begins at `address` and copies it to `out`. If
  // several threads take the same address, only one of them gets kBase.
  Found Take(driver::CUdeviceptr address, Redirection* out);

  // Removes a range that was mapped in `context` and copies it to `out`. False
  // if there is none.
  bool TakeFrom(driver::CUcontext context, Redirection* out);

 private:
  size_t UpperBound(driver::CUdeviceptr address) const
      FINESERVE_REQUIRES(mutex_);
  void PublishBounds() FINESERVE_REQUIRES(mutex_);
  void Remove(Redirection* at, Redirection* out) FINESERVE_REQUIRES(mutex_);

  Mutex mutex_;
  size_t count_ FINESERVE_GUARDED_BY(mutex_) = 0;
  Redirection ranges_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
  // Relaxed: see the class comment. Both are 0 when the table is empty, so that
  // the global table is all zeros and takes no space in the library's file.
  std::atomic<uint64_t> low_{0};
  std::atomic<uint64_t> high_{0};
};

}  // namespace fineserve::shim

#endif  // SHIM_MAP_RANGE_TABLE_H_
