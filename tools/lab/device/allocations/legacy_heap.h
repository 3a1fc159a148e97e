#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_LEGACY_HEAP_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_LEGACY_HEAP_H_

#include <cstdint>
#include <map>
#include <memory>

#include "tools/lab/device/allocations/memory_block.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/physical_memory.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace fineserve::emucuda {

class Context;

// The memory of cuMemAlloc and cuMemAllocManaged, in chunks of 2 MiB or more.
// Chunks are reserved and mapped like all device memory, so the host can read
// them, as managed memory requires. Small allocations of one kind share a chunk
// of their context and are aligned to 512 bytes.
//
// Invariants: a chunk has at least one live allocation; allocations of a chunk
// do not overlap. Thread-safe; device work does not take its lock.
class LegacyHeap {
 public:
  explicit LegacyHeap(AddressSpace& space) : space_(space) {}

  // `kind` is kDevice or kManaged.
  CUresult Allocate(const Context& owner, PhysicalMemory& memory,
                    uint64_t bytes, BlockKind kind, CUdeviceptr* address);
  // Returns INVALID_VALUE unless a live allocation starts at `address`. The
  // caller has synchronised the owner.
  CUresult Free(CUdeviceptr address);
  void FreeAll(const Context& owner);

  // Finds the allocation around an address. Returns false if there is none.
  bool Find(CUdeviceptr address, MemoryBlock* block) const;

 private:
  struct Chunk {
    uint64_t bytes = 0;
    const Context* owner = nullptr;
    BlockKind kind = BlockKind::kDevice;
    std::shared_ptr<const MemoryObject> object;
    std::map<uint64_t, uint64_t> live;  // offset → bytes requested
  };
  using Chunks = std::map<CUdeviceptr, Chunk>;

  CUresult AddChunk(const Context& owner, PhysicalMemory& memory,
                    uint64_t bytes, BlockKind kind, CUdeviceptr* address)
      EMUCUDA_REQUIRES(mutex_);
  // Finds room in a chunk that the owner already has. Returns false if there is
  // none.
  bool Fit(const Context& owner, uint64_t bytes, BlockKind kind,
           CUdeviceptr* address) EMUCUDA_REQUIRES(mutex_);
  void RemoveChunk(Chunks::iterator chunk) EMUCUDA_REQUIRES(mutex_);

  AddressSpace& space_;
  mutable Mutex mutex_;
  Chunks chunks_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_LEGACY_HEAP_H_
