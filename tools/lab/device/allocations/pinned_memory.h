#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_PINNED_MEMORY_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_PINNED_MEMORY_H_

#include <cstdint>
#include <map>

#include "tools/lab/device/allocations/memory_block.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

// Host memory that the driver knows because cuMemHostAlloc allocated it or
// cuMemHostRegister registered it. Asynchronous copies use it without staging,
// and the device reaches it at the host's address. Thread-safe. Invariant:
// ranges do not overlap.
class PinnedMemory {
 public:
  CUresult Allocate(const Context& owner, uint64_t bytes, unsigned flags,
                    void** host);
  CUresult Free(void* host);
  // Returns HOST_MEMORY_ALREADY_REGISTERED if any byte of the range is already
  // known.
  CUresult Register(const Context& owner, void* host, uint64_t bytes,
                    unsigned flags);
  CUresult Unregister(void* host);

  // True if one known range contains all these bytes.
  bool Contains(const void* host, uint64_t bytes) const;
  // Finds the range around an address. Returns false if there is none.
  bool Find(CUdeviceptr address, MemoryBlock* block) const;

 private:
  struct Range {
    uint64_t bytes = 0;
    bool lent = false;
    unsigned flags = 0;
    const Context* owner = nullptr;
    uint64_t id = 0;
  };
  using Ranges = std::map<uint64_t, Range>;

  void Add(const Context& owner, uint64_t start, uint64_t bytes, bool lent,
           unsigned flags) EMUCUDA_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Ranges ranges_ EMUCUDA_GUARDED_BY(mutex_);
  // The top bit keeps these ids distinct from those of device memory
  // (memory_block.h).
  uint64_t next_id_ EMUCUDA_GUARDED_BY(mutex_) = uint64_t{1} << 63;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_PINNED_MEMORY_H_
