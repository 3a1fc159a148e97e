#ifndef TOOLS_EMUCUDA_PINNED_MEMORY_H_
#define TOOLS_EMUCUDA_PINNED_MEMORY_H_

#include <cstdint>
#include <map>

#include "tools/emucuda/driver_types.h"
#include "tools/emucuda/mutex.h"

namespace fineserve::emucuda {

// cuMemAllocHost: host memory that asynchronous copies may use without
// staging. Thread-safe.
class PinnedMemory {
 public:
  CUresult Allocate(uint64_t bytes, void** host);
  CUresult Free(void* host);
  // Whether the whole range lies in one pinned allocation.
  bool Contains(const void* host, uint64_t bytes) const;

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, uint64_t> ranges_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_PINNED_MEMORY_H_
