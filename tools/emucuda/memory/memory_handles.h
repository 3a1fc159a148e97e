#ifndef TOOLS_EMUCUDA_MEMORY_MEMORY_HANDLES_H_
#define TOOLS_EMUCUDA_MEMORY_MEMORY_HANDLES_H_

#include <cstdint>
#include <map>
#include <memory>

#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/machine/physical_memory.h"

namespace fineserve::emucuda {

// What a CUmemGenericAllocationHandle stands for. A mapping shares it, which
// is why memory outlives cuMemRelease. Immutable, hence thread-safe.
struct MemoryObject {
  CUmemGenericAllocationHandle handle = 0;
  int device = 0;
  driver::CUmemAllocationProp prop = {};
  std::shared_ptr<Allocation> allocation;
};

// The process's live handles and how often each must still be released.
// Thread-safe. Invariant: a listed handle has a positive count.
class MemoryHandles {
 public:
  CUmemGenericAllocationHandle Add(int device,
                                   const driver::CUmemAllocationProp& prop,
                                   std::shared_ptr<Allocation> allocation);
  // Null if the handle is not live.
  std::shared_ptr<const MemoryObject> Find(
      CUmemGenericAllocationHandle handle) const;
  // One more release is due; brings a released handle back to life.
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

#endif  // TOOLS_EMUCUDA_MEMORY_MEMORY_HANDLES_H_
