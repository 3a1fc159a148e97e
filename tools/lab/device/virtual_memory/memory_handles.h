#ifndef TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_MEMORY_HANDLES_H_
#define TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_MEMORY_HANDLES_H_

#include <cstdint>
#include <map>
#include <memory>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/physical_memory.h"

namespace fineserve::emucuda {

// The memory behind a CUmemGenericAllocationHandle. Mappings share it, which is
// why memory outlives cuMemRelease. Immutable, and therefore thread-safe.
struct MemoryObject {
  CUmemGenericAllocationHandle handle = 0;
  int device = 0;
  driver::CUmemAllocationProp prop = {};
  std::shared_ptr<Allocation> allocation;
  bool managed = false;  // the host may touch it, too
};

// The process's live handles, and how many releases each one still requires.
// Thread-safe. Invariant: the count of a listed handle is positive.
class MemoryHandles {
 public:
  CUmemGenericAllocationHandle Add(int device,
                                   const driver::CUmemAllocationProp& prop,
                                   std::shared_ptr<Allocation> allocation);
  // Returns null if the handle is not live.
  std::shared_ptr<const MemoryObject> Find(
      CUmemGenericAllocationHandle handle) const;
  // Adds one to the releases that the handle requires. A released handle
  // becomes live again.
  void Retain(std::shared_ptr<const MemoryObject> object);
  CUresult Release(CUmemGenericAllocationHandle handle);

 private:
  struct Entry {
    std::shared_ptr<const MemoryObject> object;
    int count = 0;
  };

  mutable Mutex mutex_;
  std::map<CUmemGenericAllocationHandle, Entry> entries_
      EMUCUDA_GUARDED_BY(mutex_);
  CUmemGenericAllocationHandle next_ EMUCUDA_GUARDED_BY(mutex_) = 0x1000;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_MEMORY_HANDLES_H_
