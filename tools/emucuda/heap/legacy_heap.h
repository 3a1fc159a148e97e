#ifndef TOOLS_EMUCUDA_HEAP_LEGACY_HEAP_H_
#define TOOLS_EMUCUDA_HEAP_LEGACY_HEAP_H_

#include <cstdint>
#include <map>
#include <memory>

#include "tools/emucuda/heap/memory_block.h"
#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/machine/physical_memory.h"
#include "tools/emucuda/memory/address_space.h"

namespace fineserve::emucuda {

class Context;

// cuMemAlloc and cuMemAllocManaged: chunks of 2 MiB and more, reserved and
// mapped like everything else, and thereby readable by the host, which managed
// memory has to be. Small allocations of a kind share a chunk of their context,
// 512-byte aligned.
//
// Invariants: a chunk has at least one live allocation; allocations of a chunk
// do not overlap. Thread-safe; its lock is not taken by device work.
class LegacyHeap {
 public:
  explicit LegacyHeap(AddressSpace& space) : space_(space) {}

  // `kind` is kDevice or kManaged.
  CUresult Allocate(const Context& owner, PhysicalMemory& memory,
                    uint64_t bytes, BlockKind kind, CUdeviceptr* address);
  // INVALID_VALUE unless `address` is the start of a live allocation. The
  // caller has synchronised the owner.
  CUresult Free(CUdeviceptr address);
  void FreeAll(const Context& owner);

  // The allocation around an address; false if there is none.
  bool Find(CUdeviceptr address, MemoryBlock* block) const;

 private:
  struct Chunk {
    uint64_t bytes = 0;
    const Context* owner = nullptr;
    BlockKind kind = BlockKind::kDevice;
    std::shared_ptr<const MemoryObject> object;
    std::map<uint64_t, uint64_t> live;  // offset → bytes asked for
  };
  using Chunks = std::map<CUdeviceptr, Chunk>;

  CUresult AddChunk(const Context& owner, PhysicalMemory& memory,
                    uint64_t bytes, BlockKind kind, CUdeviceptr* address)
      EMUCUDA_REQUIRES(mutex_);
  // A place in a chunk that the owner has already; false if there is none.
  bool Fit(const Context& owner, uint64_t bytes, BlockKind kind,
           CUdeviceptr* address) EMUCUDA_REQUIRES(mutex_);
  void RemoveChunk(Chunks::iterator chunk) EMUCUDA_REQUIRES(mutex_);

  AddressSpace& space_;
  mutable Mutex mutex_;
  Chunks chunks_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_HEAP_LEGACY_HEAP_H_
