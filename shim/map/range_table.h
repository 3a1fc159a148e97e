#ifndef SHIM_MAP_RANGE_TABLE_H_
#define SHIM_MAP_RANGE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/driver/cuda_types.h"
#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// One redirected allocation: a virtual range of ours over leased slabs.
struct Redirection {
  driver::CUdeviceptr base = 0;
  uint64_t reserved_bytes = 0;  // whole slabs
  uint64_t asked_bytes = 0;     // by the program
  uint64_t epoch = 0;           // of the daemon that leased them
  uint32_t lease = 0;
  driver::CUcontext context = nullptr;  // current when it was mapped
  // Of a mapping of the program's own (virtual_memory.h): what is mapped.
  driver::CUmemGenericAllocationHandle handle = 0;
  bool is_view =
      false;  // a tensor of the engine's view (view_mapping.h): lease 0
};

// The redirected allocations of this process, sorted by base; ranges do not
// overlap. Thread-safe. MayHold takes no lock and is all that an uninteresting
// cuMemFree pays; an address that a program may free has been given to it
// after Insert, so its own synchronisation makes the bounds visible.
//
// Invariant: every range lies within [low, high). The capacity is fixed so
// that nothing is allocated under the lock; an engine makes one range per KV
// tensor, some hundreds.
class RangeTable {
 public:
  static constexpr size_t kCapacity = 4096;
  enum class Found {
    kNothing,  // not ours
    kInside,   // ours, but not a base: the driver would refuse to free it
    kBase,
  };

  constexpr RangeTable() = default;

  bool MayHold(driver::CUdeviceptr address) const {
    return address >= low_.load(std::memory_order_relaxed) &&
           address < high_.load(std::memory_order_relaxed);
  }

  // False if the table is full.
  bool Insert(const Redirection& range);

  // Copies the range that holds `address`. False if none does.
  bool Find(driver::CUdeviceptr address, Redirection* out);

  // Copies the first range that overlaps [address, address + bytes).
  bool FirstOverlap(driver::CUdeviceptr address, uint64_t bytes,
                    Redirection* out);

  // Removes the range that begins at `address` and copies it to `out`. Only
  // one of several callers gets kBase for the same address.
  Found Take(driver::CUdeviceptr address, Redirection* out);

 private:
  size_t UpperBound(driver::CUdeviceptr address) const
      FINESERVE_REQUIRES(mutex_);
  void PublishBounds() FINESERVE_REQUIRES(mutex_);

  Mutex mutex_;
  size_t count_ FINESERVE_GUARDED_BY(mutex_) = 0;
  Redirection ranges_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
  // Relaxed: see MayHold. Both 0 when the table is empty, so that the global
  // table is all zero and takes no room in the file.
  std::atomic<uint64_t> low_{0};
  std::atomic<uint64_t> high_{0};
};

}  // namespace fineserve::shim

#endif  // SHIM_MAP_RANGE_TABLE_H_
